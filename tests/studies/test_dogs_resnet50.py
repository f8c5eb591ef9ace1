"""ResNet-50 against Keras' definition, written a second time in NumPy: channels last, nothing folded."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from studies.dogs.resnet50 import Resnet50, fill

WIDTH, STAGES, CLASSES = 2, (2, 1), 5
Doubles = NDArray[np.float64]
Weights = dict[str, Doubles]


def random_weights(seed: int) -> Weights:
    """Names and shapes as Keras has them, for a network of two stages."""
    draw = np.random.default_rng(seed)
    made: Weights = {}

    def convolution(name: str, normalization: str, *shape: int) -> None:
        made[f"{name}/kernel"] = draw.normal(size=shape) / np.sqrt(np.prod(shape[:3]))
        made[f"{name}/bias"] = draw.normal(size=shape[3])
        for one in ("gamma", "beta", "moving_mean"):
            made[f"{normalization}/{one}"] = draw.normal(size=shape[3])
        made[f"{normalization}/moving_variance"] = draw.uniform(0.001, 2, size=shape[3])

    convolution("conv1", "bn_conv1", 7, 7, 3, WIDTH)
    channels = WIDTH
    for stage, count in enumerate(STAGES):
        narrow = WIDTH * 2**stage
        for letter in "ab"[:count]:
            block = f"{stage + 2}{letter}"
            shapes = {
                "2a": (1, 1, channels, narrow),
                "2b": (3, 3, narrow, narrow),
                "2c": (1, 1, narrow, 4 * narrow),
            }
            if letter == "a":
                shapes["1"] = (1, 1, channels, 4 * narrow)
            for branch, shape in shapes.items():
                convolution(f"res{block}_branch{branch}", f"bn{block}_branch{branch}", *shape)
            channels = 4 * narrow
    made["fc1000/kernel"] = draw.normal(size=(channels, CLASSES))
    made["fc1000/bias"] = draw.normal(size=CLASSES)
    return made


def windows(images: Doubles, size: int, stride: int, pad: int) -> Doubles:
    """(n, rows, columns, size, size, channels)."""
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
    return seen[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


def normalized(
    weights: Weights, name: str, normalization: str, images: Doubles, stride: int, pad: int
) -> Doubles:
    """A convolution, and the normalisation behind it."""
    kernel = weights[f"{name}/kernel"]
    out = np.einsum("nrchwi,hwio->nrco", windows(images, kernel.shape[0], stride, pad), kernel)
    out = out + weights[f"{name}/bias"]
    gamma, beta, mean, variance = (
        weights[f"{normalization}/{one}"] for one in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    return np.asarray(gamma * (out - mean) / np.sqrt(variance + 1e-3) + beta)


def by_hand(weights: Weights, images: Doubles) -> tuple[Doubles, Doubles]:
    """Features (n, h, w, c) and logits of (n, h, w, 3) images in [0, 255], red first."""
    x = images[..., ::-1] - np.array([103.939, 116.779, 123.68])
    x = np.maximum(normalized(weights, "conv1", "bn_conv1", x, 2, 3), 0)
    x = windows(x, 3, 2, 1).max((3, 4))
    for stage, count in enumerate(STAGES):
        for letter in "ab"[:count]:
            block = f"{stage + 2}{letter}"
            stride = 2 if stage > 0 and letter == "a" else 1

            def branch(name: str, into: Doubles, step: int = 1, pad: int = 0, block: str = block) -> Doubles:
                names = f"res{block}_branch{name}", f"bn{block}_branch{name}"
                return normalized(weights, *names, into, step, pad)

            inside = np.maximum(branch("2a", x, stride), 0)
            inside = np.maximum(branch("2b", inside, pad=1), 0)
            kept = branch("1", x, stride) if letter == "a" else x
            x = np.maximum(branch("2c", inside) + kept, 0)
    return x, x.mean((1, 2)) @ weights["fc1000/kernel"] + weights["fc1000/bias"]


def test_features_and_classes_are_those_of_the_definition() -> None:
    weights = random_weights(0)
    network = Resnet50(CLASSES, WIDTH, STAGES).double()
    fill(network, weights, last=True)
    pixels = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3)).astype(np.float64)
    features, logits = by_hand(weights, pixels)
    images = torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 255)
    # The mean colour is stored in float32, as the weights are.
    found = network.features(images).permute(0, 2, 3, 1)
    torch.testing.assert_close(found, torch.from_numpy(features), rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(network(images), torch.from_numpy(logits), rtol=1e-6, atol=1e-5)


def test_a_network_for_other_classes_keeps_its_own_last_layer() -> None:
    network = Resnet50(3, WIDTH, STAGES)
    before = network.last.weight.detach().clone()
    fill(network, random_weights(0), last=False)
    assert torch.equal(network.last.weight, before)


def test_resnet_50_has_its_published_size() -> None:
    with torch.device("meta"):
        network = Resnet50(1000)
        features = network.features(torch.empty(1, 3, 224, 224))
    # 25,636,712 in Keras, less the four numbers of normalisation for each of 26,560 channels.
    assert sum(weights.numel() for weights in network.parameters()) == 25_636_712 - 4 * 26_560
    assert features.shape == (1, 2048, 7, 7)
