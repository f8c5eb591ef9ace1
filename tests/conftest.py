"""Settings shared by all tests."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

# Timings depend on the machine, so no example has a deadline. In CI the examples are the same every time.
settings.register_profile("certus", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("certus")

# Several test processes may share the cores.
torch.set_num_threads(1)
