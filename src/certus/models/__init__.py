"""Networks by name."""

from certus.models.paper import mnist_cnn, toy_mlp

__all__ = ["mnist_cnn", "toy_mlp"]
