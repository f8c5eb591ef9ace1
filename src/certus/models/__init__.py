"""Networks: those of the paper, and any by name."""

from certus.models.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs
from certus.models.paper import mnist_cnn, toy_mlp
from certus.models.registry import build_model, default_model, mlp

__all__ = [
    "LogCosh",
    "Normalize",
    "Residual",
    "Scale",
    "SmoothAbs",
    "build_model",
    "default_model",
    "mlp",
    "mnist_cnn",
    "toy_mlp",
]
