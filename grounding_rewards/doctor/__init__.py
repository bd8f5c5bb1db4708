"""Finds mistakes in a dataset of images and boxes: `examine` reads its rows once and returns a `Checkup`.

Each module `*_checks` covers one topic: its checks (severity, title, why it matters, what to do) and the examiner that
makes them. A new check is an entry and a few lines in one of these modules.
"""
