"""The networks have the sizes that they should have."""

from __future__ import annotations

import pytest
import torch

from certus.datasets import load
from certus.errors import ArgumentError
from certus.models import Residual, build_model, mnist_cnn, resnet, toy_mlp
from certus.training.preflight import certificate_outlook


def test_the_papers_networks() -> None:
    """710,218 weights, and the shapes of TensorFlow's SAME padding at stride 2: 28 → 14 → 5 → 1."""
    network = mnist_cnn()
    assert sum(weight.numel() for weight in network.parameters()) == 710_218
    images = torch.zeros(2, 1, 28, 28)
    sizes = [tuple(network[: i + 1](images).shape[2:]) for i in (0, 2, 4)]
    assert sizes == [(14, 14), (5, 5), (1, 1)]
    assert network(images).shape == (2, 10)
    assert toy_mlp(torch.nn.ReLU)(torch.zeros(3, 2)).shape == (3, 2)
    assert [tuple(weight.shape) for weight in toy_mlp().parameters() if weight.dim() == 2] == [
        (4, 2),
        (2, 4),
        (2, 2),
    ]


def test_a_residual_network_is_what_it_says() -> None:
    """Shapes by stage, weights counted by hand, and a block that is a block: relu(x + branch(x))."""
    network = resnet((3, 32, 32), [16, 32, 64], 10).eval()
    images = torch.rand(2, 3, 32, 32)
    sizes = [tuple(network[: i + 1](images).shape[1:]) for i in (2, 4, 6, 8, 9)]
    assert sizes == [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (64, 1, 1)]
    convolutions = 9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 16 * 32 + 32 * 64
    normalisations = 2 * (3 * 16 + 3 * 32 + 3 * 64)
    assert sum(weight.numel() for weight in network.parameters()) == convolutions + normalisations + 650
    inside, block = network[:3](images), network[3]
    assert isinstance(block, Residual)
    torch.testing.assert_close(network[:5](images), (inside + block.branch(inside)).relu())


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("resnet:", r"`model` must be like resnet:16,32,64; got 'resnet:'"),
        ("resnet:16,x", "`model` must be like resnet:16,32,64"),
        ("resnet:16,0", r"between 1 and 4096 channels in each stage; got \[16, 0\]"),
        ("resnet:16,5000", "between 1 and 4096 channels in each stage"),
        ("resnet:4,4,4,4,4", r"images of at least 16 pixels for 5 stages; got \(1, 8, 8\)"),
    ],
)
def test_residual_networks_that_cannot_be_are_refused(spec: str, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        build_model(spec, load("digits"))
    with pytest.raises(ArgumentError, match="have images"):
        build_model("resnet:4", load("wine"))


def test_residual_networks_have_bounds_and_their_own_weights_again() -> None:
    network = build_model("resnet:4,8", load("digits"), seed=1)
    assert "can be certified by its slope" in certificate_outlook(network, (1, 8, 8))
    other = build_model("resnet:4,8", load("digits"), seed=2)
    other.load_state_dict(network.state_dict())
    images = load("digits").test.inputs[:4]
    torch.testing.assert_close(other.eval()(images), network.eval()(images))


def test_prospects_follow_the_depth() -> None:
    """Behind a table by depth: the deepest row that a network reaches."""

    def chain(depth: int) -> torch.nn.Module:
        layers = [part for _ in range(depth) for part in (torch.nn.Linear(2, 2), torch.nn.Tanh())]
        return torch.nn.Sequential(*layers, torch.nn.Linear(2, 2))

    assert "about 8.6 times the attained slope at depth 2 (useful" in certificate_outlook(chain(2), (2,))
    assert "over 108 times the attained slope at depth 8 (of little use" in certificate_outlook(
        chain(8), (2,)
    )
    assert (
        "over 3000 times the attained slope at depth 9 (of no use: prove by --smoothing)"
        in certificate_outlook(chain(9), (2,))
    )
