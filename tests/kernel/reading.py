"""Layers as primitives of the kernel, beside their matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.bounds.network import read_network, read_nodes
from certus.bounds.norm_proposals import claim_norms
from certus.kernel.graph import Graph
from certus.kernel.operators import Affine
from certus.kernel.passes import Primitive

Shape = tuple[int, ...]


def graph(model: nn.Module, shape: Shape) -> Graph:
    """The merged graph of a model, with its norms claimed."""
    read = read_network(model.double().eval(), shape).graph
    claim_norms(read)
    return read


def primitive(layer: nn.Module, shape: Shape) -> Primitive:
    """The only primitive of a layer."""
    (_, node) = graph(layer, shape).nodes
    assert node.primitive is not None
    return node.primitive


def operator(layer: nn.Module, shape: Shape) -> Affine:
    """The operator of affine layers."""
    found = primitive(layer, shape)
    assert isinstance(found, Affine)
    return found


def unmerged(layer: nn.Module, shape: Shape) -> Primitive:
    """The only primitive of a layer as its rule gives it, not compared with the layer."""
    (_, node) = read_nodes(layer.eval(), shape)
    assert node.primitive is not None
    return node.primitive


def dense(layer: nn.Module, shape: Shape) -> Tensor:
    """The matrix of an affine layer from the layer itself, one basis image at a time."""
    size = int(torch.tensor(shape).prod())
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    with torch.no_grad():
        images: Tensor = layer(basis) - layer(torch.zeros_like(basis))
    return images.flatten(1).T


def svd_norm(matrix: Tensor) -> float:
    """‖A‖ by the singular value decomposition."""
    return float(torch.linalg.svdvals(matrix)[0])
