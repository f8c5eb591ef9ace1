"""Distributions that were found: what lower sides rest on. It imports the kernel, which does not know it."""
