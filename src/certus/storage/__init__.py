"""Files that execute nothing when they are read: JSON, tensors, seals and locks."""
