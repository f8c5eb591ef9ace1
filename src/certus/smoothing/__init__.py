"""Certificates for any model at all, from its predictions at noisy inputs; docs/smoothing.md derives them."""
