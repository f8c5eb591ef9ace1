"""The version of the bounds: one number for the mathematics and the code that certified numbers come from."""

from __future__ import annotations

BOUNDS_VERSION = 67
"""Raised with every change to a file that bounds rest on; CONTRIBUTING.md says how, and a test insists.

Levels of an interrupted certification are used again only under the number that computed them, and a
certificate says which one made it.
"""
