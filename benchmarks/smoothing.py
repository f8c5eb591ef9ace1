"""Certificates by smoothing against two rivals, on the same predictions, each as strong as it goes.

    certus data get mnist
    python -m benchmarks.smoothing                      # digits and MNIST, some ten minutes
    python -m benchmarks.smoothing --entries digits     # this one; the other stays as it is

Upper bounds on the mean error of a noisy model, and on that of its ideal vote, within √ρ of the population,
with confidence 0.95 for each number by itself:

ours      Bernstein coefficients from a linear program on calibration samples, proven, one bet for each γ
clopper   per-sample Clopper–Pearson bounds at a level α, F at the bound, plus α, one bet for each γ; α is the
          best on the calibration samples for each γ (after Cohen, Rosenfeld and Kolter)
affine    the least concave majorant of F at a bet on the mean error alone, so that no union over γ is needed
          and every γ is tried (after Kumar, Levine, Goldstein and Feizi)

Also how many predictions a second, how much memory the batches of noisy copies take, and the linear programs'
share of the time.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, Entries, read_options
from benchmarks._results import write_entry
from certus.certificates.proven.concentration import betting
from certus.certificates.smoothing.ballots import IDEAL_VOTE, ONE_DRAW, Ballot
from certus.certificates.smoothing.binomial import Floats, normal_below, success_floor
from certus.certificates.smoothing.counting import upper_means
from certus.certificates.smoothing.drawing import Observed, observe
from certus.certificates.smoothing.envelope import Envelope
from certus.certificates.smoothing.leading import Stake
from certus.certificates.smoothing.noise import CALIBRATION, CERTIFIED, Noise
from certus.certificates.smoothing.plan import make_plan
from certus.certificates.smoothing.predictors import Predictor
from certus.subsets import Subset, random_order

DISTANCES = (0.02, 0.03, 0.05, 0.1, 0.2, 0.32, 0.5)
FAILURE = 0.05
LEVELS = (0.0003, 0.001, 0.003, 0.01, 0.03)
KINDS = {"error": ONE_DRAW, "ideal vote": IDEAL_VOTE}


@dataclass(frozen=True)
class Entry:
    """A ReLU network with hidden layers of these widths, trained in noise by ERM (Adam 0.001)."""

    data: str
    widths: tuple[int, ...]
    epochs: int
    samples: int
    calibration: int


ENTRIES = {
    "digits": Entry("digits", (256, 256), 60, 10_000, 1_000),
    "mnist": Entry("mnist", (256, 256), 5, 10_000, 1_000),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "what to certify", Entries(ENTRIES)] = tuple(ENTRIES)
    share: Annotated[float, "of each entry's epochs and samples, for a quick look"] = 1.0
    sigma: Annotated[float, "of the noise, in training and after"] = 0.25
    draws: Annotated[int, "noisy copies of each sample"] = 100
    seed: Annotated[int, "of the weights, the noise and the order of the samples"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/smoothing.json")


def main(args: Args) -> None:
    torch.set_num_threads(1)
    for name in args.entries:
        write_entry(args, name, compare(ENTRIES[name], args))


def compare(entry: Entry, args: Args) -> dict[str, Any]:
    """The three bounds at every distance, for both kinds, and what ours cost."""
    data = certus.data.load(entry.data)
    torch.manual_seed(args.seed)
    sizes = (data.train.inputs[0].numel(), *entry.widths)
    hidden = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], 10))
    epochs = max(1, round(args.share * entry.epochs))
    certus.fit(model, data.train, epochs=epochs, noise=args.sigma, seed=args.seed)
    noise, predictor = Noise(args.sigma, certus.SquaredL2()), Predictor.of(model)
    chosen = [
        Subset.of(split, f"{entry.data}@{name}", max(50, round(args.share * count)), seed=0, stratify=False)
        for name, split, count in (
            ("calibration", data.calibration, entry.calibration),
            ("test", data.test, entry.samples),
        )
    ]
    began = time.process_time()
    before, seen = (
        observe(predictor, part.data, noise, copies=args.draws, seed=args.seed, stream=stream)
        for part, stream in zip(chosen, (CALIBRATION, CERTIFIED), strict=True)
    )
    drawing = time.process_time() - began
    predictions = args.draws * sum(len(part.data) for part in chosen)
    assert before.errors is not None
    assert seen.errors is not None
    errors, order = before.errors.double().numpy(), random_order(len(seen.errors), args.seed)
    rows: list[dict[str, Any]] = []
    planning = 0.0
    for kind, ballot in KINDS.items():
        began = time.process_time()
        rhos = [one**2 for one in DISTANCES]
        stakes = make_plan(
            ballot, errors, args.draws, rhos, args.sigma, samples=len(seen.errors), failure=FAILURE
        )
        planning += time.process_time() - began
        ours = upper_means(stakes, seen, order, FAILURE)
        rival = clopper(stakes, ballot, before, seen, order, args)
        mean = betting((seen.errors / args.draws)[order], 1.0, FAILURE)
        other = majorants(ballot, mean, args.sigma)
        for distance in DISTANCES:
            rho = distance**2
            rows.append(
                {
                    "kind": kind,
                    "distance": distance,
                    "ours": min(1.0, *(gamma * rho + each for gamma, each in ours.items())),
                    "clopper": min(1.0, *(gamma * rho + each for gamma, each in rival.items())),
                    "affine": min(1.0, *(gamma * rho + each for gamma, each in other.items())),
                }
            )
            told = "  ".join(f"{name} {rows[-1][name]:.4f}" for name in ("ours", "clopper", "affine"))
            print(f"{kind:>10}  √ρ {distance:<5} {told}")
    memory = 4 * max(1, min(16_384, 2**24 // sizes[0])) * sizes[0] / 2**20
    print(f"{predictions / drawing:,.0f} predictions a second; plans take {planning:.1f} s of the processor")
    return {
        **asdict(entry),
        "epochs": epochs,
        "rows": [part.as_json() for part in chosen],
        "mean error in noise": float((seen.errors / args.draws).mean()),
        "bounds": rows,
        "ours is below both": all(row["ours"] < min(row["clopper"], row["affine"]) for row in rows),
        "predictions": predictions,
        "predictions per second": round(predictions / drawing),
        "megabytes of noisy copies": round(memory, 1),
        "seconds of predicting": round(drawing, 2),
        "seconds of planning": round(planning, 2),
        "share of planning": round(planning / (planning + drawing), 3),
    }


def clopper(
    stakes: list[Stake], ballot: Ballot, before: Observed, seen: Observed, order: torch.Tensor, args: Args
) -> dict[float, float]:
    """γ → a bound on E F by per-sample bounds on h: F ≤ F(h̄) but with probability α, and F ≤ 1 then."""
    assert before.errors is not None
    assert seen.errors is not None
    tops = {
        level: np.array([1 - success_floor(args.draws - k, args.draws, level) for k in range(args.draws + 1)])
        for level in LEVELS
    }
    found, known = {}, before.errors.numpy()
    for stake in stakes:
        envelope = Envelope.of(ballot, stake.gamma * args.sigma**2)
        grid = normal_below(envelope.scores)
        # At the next point of the grid, so that it is a bound between points too.
        values = {
            level: np.append(envelope.values, 1.0)[np.searchsorted(grid, top)] for level, top in tops.items()
        }
        level = min(LEVELS, key=lambda one: values[one][known].mean() + one)
        each = torch.from_numpy(values[level])[seen.errors][order]
        found[stake.gamma] = betting(each, 1.0, FAILURE / len(stakes)) + level
    return found


def majorants(ballot: Ballot, mean: float, sigma: float) -> dict[float, float]:
    """γ → the least concave majorant of F at a bound on the mean of h: all of them hold at once."""
    found = {}
    for kappa in np.geomspace(1e-3, 1e3, 60).tolist():
        envelope = Envelope.of(ballot, kappa)
        found[kappa / sigma**2] = _majorant(normal_below(envelope.scores), envelope.values, mean)
    return found


def _majorant(points: Floats, values: Floats, at: float) -> float:
    """The least concave function above (points, values) and (1, 1), at one place: the best chord over it."""
    points, values = np.append(points, 1.0), np.append(values, 1.0)
    left, right = points <= at, points >= at
    x, y, u, v = points[left][::4], values[left][::4], points[right][::4], values[right][::4]
    width = np.maximum(u[None] - x[:, None], 1e-300)
    chords = y[:, None] + (v[None] - y[:, None]) * (at - x[:, None]) / width
    return float(chords.max())


if __name__ == "__main__":
    main(read_options(Args, __doc__))
