"""Finds mistakes in a dataset of images and boxes: `examine` reads its rows once and returns a `Checkup`.

`case.py` holds what is looked at: all rows without their images, and all boxes side by side. A check is a function
from the case to defects, in the module `*_checks` of its topic and in the list of `examine.py`; its words (severity,
title, why it matters, what to do) are a section of `checks.ini`. `group_checks.py` compares groups of rows in any
number, `fit_checks.py` boxes with what their images show (`box_content.py`) and with others of their label.
"""
