"""Results as text: what commands print, and what ``print(certificate)`` shows."""
