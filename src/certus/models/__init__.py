"""Networks: those of the paper, and any by name."""

from certus.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs
from certus.models.paper import mnist_cnn, toy_mlp
from certus.models.registry import build_model, default_model, mlp
from certus.models.resnet import resnet
from certus.models.unit_norm import certified_cnn, certified_mlp, principal_components

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
