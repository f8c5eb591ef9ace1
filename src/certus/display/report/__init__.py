"""The HTML report of one run or several, for offline use."""
