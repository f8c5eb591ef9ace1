"""Tools for maintainers; not installed."""
