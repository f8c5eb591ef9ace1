"""Networks: those of the paper, and any by name."""

from certus.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs
from certus.models.networks import (
    build_model,
    certified_cnn,
    certified_mlp,
    default_model,
    mlp,
    mnist_cnn,
    principal_components,
    resnet,
    toy_mlp,
)

__all__ = [
    "LogCosh",
    "Normalize",
    "Residual",
    "Scale",
    "SmoothAbs",
    "build_model",
    "certified_cnn",
    "certified_mlp",
    "default_model",
    "mlp",
    "mnist_cnn",
    "principal_components",
    "resnet",
    "toy_mlp",
]
