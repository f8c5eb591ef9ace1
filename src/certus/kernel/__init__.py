"""The trusted kernel: it imports NumPy and torch, and nothing else of certus.

A network is a flat graph of primitives with float64 weights. Proposals come from outside; the kernel returns
a bound, or raises ``Refused``. A foolish proposal makes a bound loose, never wrong.
"""
