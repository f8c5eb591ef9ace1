"""Set-ups side by side: what the paper says, what its authors' code does, and what was done here.

The authors' public code has the training of ERM and WRM on MNIST, and nothing else. An empty cell means that
nothing is said there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Rows = Sequence[tuple[str, str, str, str]]
"""Name, paper, authors' code, here."""

_NETWORK = (
    "network",
    "convolutions 8×8, 6×6, 5×5, ELU, a dense layer",
    "64, 128 and 128 channels, strides 2, 2, 1",
    "as the authors' code",
)
_OPTIMIZER = ("optimizer", "", "Adam, 0.001, batches of 256", "the same, constant rate")
_LABELS = ("labels", "", "smoothed by 0.1", "as they are")
_IMAGES = ("training images", "", "60,000", "55,000; 5,000 are held out")
_ASCENT = ("steps of WRM", "15", "1, then 15 of (1/2γ)/√t", "until the tolerance 0.005, at most 8")
_ATTACKS = ("attacks", "15 steps; clipping not said", "", "15 steps, not clipped")


def _mnist(epochs: str, gamma: str, images: str, *more: tuple[str, str, str, str]) -> Rows:
    return (
        _NETWORK,
        _OPTIMIZER,
        ("epochs", "", "25", epochs),
        _IMAGES,
        _LABELS,
        ("γ", gamma, "0.385" if "0.04" in gamma else "", "as the paper"),
        _ASCENT,
        _ATTACKS,
        ("attacked images", "", "", images),
        *more,
    )


_FEW = "4 for WRM and FGM, 2 for IFGM and PGM, 10 for ERM"

SETUPS: Mapping[str, Rows] = {
    "toy": (
        ("data", "Gaussian, margin √2/1.3 to 1.3√2", "", "the same, 10,000 points"),
        ("network", "2-4-2-2, ReLU or ELU", "", "the same"),
        ("γ", "2", "", "2"),
        ("ascent", "15 steps of 1/√t", "for MNIST: (1/2γ)/√t", "15 steps of (1/2γ)/√t"),
        ("optimizer", "", "", "Adam, 0.01 falling to 0, batches of 128, 30 epochs"),
        ("seeds", "one network", "", "24"),
    ),
    "mnist": _mnist("10; 4 for IFGM and PGM", "0.04 C₂", "1,000"),
    "mnist-gamma": _mnist("4", "several", "1,000"),
    "mnist-large": _mnist(_FEW, "0.02 C₂", "500"),
    "mnist-inf": _mnist(_FEW, "0.04 and 0.02 C₂", "500"),
    "mnist-prox": _mnist(
        _FEW,
        "set by the budget",
        "500",
        ("proximal steps", "given λᵗ and T", "", "until the tolerance, lengths of our own"),
    ),
    "mnist-bounds": _mnist(
        "3; 10 for one more ERM in tables 1 and 2",
        "1 to 10⁷",
        "1,000",
        ("penalty", "λ, not said of what", "", "λ‖w‖²; λ‖w‖²/2 for one more ERM in table 2"),
        ("norms in γ̄", "of the layers", "", "of the strided convolutions; also of the unstrided ones"),
    ),
    "dogs": (
        ("data", "Stanford Dogs, 120 breeds", "", "a stand-in: CIFAR-10, 10 classes"),
        ("photographs", "2,000 at 224 × 224", "", "2,000, enlarged; for pixels 500 at 64 × 64"),
        ("head", "1,024 convolutions 7×7, ELU, dense", "", "the same"),
        ("γ on features", "10⁵", "", "10⁵, and the smallest proven one"),
        ("γ on pixels", "1, units not said", "", "1 and 30, on pixels in [0, 1]"),
        ("ascent", "20 steps of 10", "", "as printed, and in units of 1/2γ"),
        ("methods on pixels", "ERM, FGM, IFGM, PGM, WRM", "", "all but IFGM"),
    ),
    "cartpole": (
        ("cells", "30 × 15", "", "30 × 15"),
        ("reward", "e^(−|β|)", "", "the same"),
        ("end of an episode", "400 steps; angle not said", "", "400 steps, ±24° (gymnasium: 12°), ±2.4 m"),
        ("γ", "", "", "50, chosen on these systems"),
        ("discount, rates, exploration", "", "", "0.99; 0.5 to 0.02; 1 to 0, over 4,000 episodes"),
        ("agents", "one of each kind, 1,000 trials", "", "20 of each kind, 1,000 trials each"),
    ),
    "cost": (
        ("network", "not said", "as on MNIST", "that of MNIST, batches of 256"),
        ("steps of WRM", "15", "16", "15, and the library's own ascent"),
    ),
}
