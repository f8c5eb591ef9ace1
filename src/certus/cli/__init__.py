"""The command line ``certus``."""
