"""The paper's figures and tables, measured again: ``python -m studies NAME``.

A *reproduction* is a list of parts to measure, of pictures to draw from what was measured, and of statements
of the paper to hold against it. Each is one file of this folder, listed in ``reproductions.py``. Nothing is
drawn that was not measured, and a page says at which extent.
"""
