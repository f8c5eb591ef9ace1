"""The paper's figures and tables, measured again, and studies beyond it: ``python -m studies NAME``.

A study (``study.py``) is a list of parts to measure, pictures to draw from the measurements, and verdicts on
what the paper claims. ``registry.py`` lists all of them. Nothing is drawn that was not measured, and a page
says at which scale. Prose is written by hand in ``notes/NAME.md``.
"""
