"""Files that execute no code when they are read: JSON, tensors, checksums and locks."""
