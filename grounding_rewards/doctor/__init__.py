"""Finds mistakes in a dataset of images and boxes: `examine` reads its rows once and returns a `Checkup`.

`context.py` holds what the checks look at: all rows without their images, and all boxes side by side. A check is a
function from the context to defects, in the module `*_checks` of its topic and in the list of `examine.py`; its texts
(severity, title, why it matters, what to do) are a section of `checks.ini`.
"""
