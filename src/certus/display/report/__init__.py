"""A run, or several side by side, as one page to look at: offline, in print, on a phone."""
