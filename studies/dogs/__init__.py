"""Features of ResNet-50, and pixels (section:dogs)."""
