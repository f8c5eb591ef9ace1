"""Certificates by smoothing of digits, MNIST and CIFAR-10, beside two rivals and the deterministic bracket.

    certus data get mnist; certus data get cifar10
    python -m experiments.smoothing                       # trains three networks in noise, certifies them
    python -m experiments.smoothing --resume              # go on after an interruption
    python -m experiments.smoothing --entries digits      # one of them; the others stay as they are
    python -m experiments.smoothing --page                # the page again, from what was measured

Upper bounds on the mean error of a noisy network, and on that of its ideal vote, within √ρ of the population,
with confidence 0.95 for each number by itself: ours, and the two of ``_smoothing_rivals``, on the same
predictions. The deterministic bracket is that of the network without noise, with the same confidence.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from benchmarks._options import RESUME, RUNS, Entries, Shows, perform, read_options
from benchmarks._results import how_measured, write_unfinished
from certus.certificates.any_model import ENOUGH
from certus.certificates.kept_draws import DrawMemory
from certus.certificates.proven.version import BOUNDS_VERSION
from certus.certificates.smoothing.ballots import IDEAL_VOTE, ONE_DRAW
from certus.certificates.smoothing.counting import upper_means
from certus.certificates.smoothing.drawing import Observed, observe
from certus.certificates.smoothing.noise import CALIBRATION, CERTIFIED, Noise
from certus.certificates.smoothing.plan import make_plan
from certus.certificates.smoothing.predictors import Predictor
from certus.costs import SquaredL2
from certus.errors import require
from certus.runs.certification import CertifySettings, certify_run
from certus.runs.directory import RunDirectory
from certus.runs.recorder import METRICS
from certus.runs.trained import TrainedRun, open_trained
from certus.split import Split
from certus.storage.tensors import digest
from certus.subsets import Subset, random_order
from experiments._smoothing_page import write_page
from experiments._smoothing_rivals import affine, clopper

DISTANCES = (0.02, 0.03, 0.05, 0.1, 0.2, 0.32, 0.5)
FAILURE = 0.05
KINDS = {"error": ONE_DRAW, "ideal vote": IDEAL_VOTE}
_PROBED = 40  # samples that the speed of predictions is measured with


@dataclass(frozen=True)
class Entry:
    """A network that is trained in noise by ERM, with Adam.

    Attributes:
        samples: test rows, at random; calibration: others that choose the plan.
        read: test rows of the deterministic bracket; 0 for none.
    """

    model: str
    epochs: int
    learning_rate: float
    samples: int
    calibration: int
    read: int
    schedule: str = "constant"


ENTRIES = {
    "digits": Entry("mlp:256,256:relu", 60, 0.001, samples=359, calibration=359, read=359),
    "mnist": Entry("mlp:256,256:relu", 3, 0.001, samples=10_000, calibration=ENOUGH, read=500),
    "cifar10": Entry("resnet:16,32,64", 8, 0.004, samples=1_000, calibration=250, read=20, schedule="cosine"),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "what to certify", Entries(ENTRIES)] = tuple(ENTRIES)
    sigma: Annotated[float, "of the noise, in training and after"] = 0.25
    draws: Annotated[int, "noisy copies of each sample"] = 100
    share: Annotated[float, "of each entry's epochs and samples, for a quick look"] = 1.0
    seed: Annotated[int, "of the weights, the noise and the order of the samples"] = 0
    resume: Annotated[bool, RESUME] = False
    page: Annotated[bool, "write the page from what was measured, and measure nothing", Shows()] = False
    runs: Annotated[Path, RUNS] = Path("runs/smoothing")
    output: Annotated[Path, "the folder for the page, its table and its picture"] = Path("results/smoothing")


def main(args: Args) -> None:
    torch.set_num_threads(1)
    write_unfinished(args, {})
    for name in args.entries:
        measure(name, args)
    page(args)


def measure(name: str, args: Args) -> None:
    """Train the network and measure what is not yet measured, into ``measured.json`` beside it."""
    run = args.runs / name
    train(run, name, args)
    trained = open_trained(RunDirectory.open(run))
    file = run / "measured.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    steps: dict[str, Callable[[TrainedRun, str, Args], Any]] = {"noisy": compare, "plain": deterministic}
    for step, ask in steps.items():
        if step not in found:
            found[step] = ask(trained, name, args)
            file.write_text(json.dumps(found, indent=1) + "\n")


def page(args: Args) -> None:
    """The page of all that was measured."""
    there = {name: args.runs / name / "measured.json" for name in ENTRIES}
    found = {name: json.loads(file.read_text()) for name, file in there.items() if file.exists()}
    require(len(found) > 0, "runs", "hold something measured", str(args.runs))
    write_page(args.output, {"measured": how_measured(args), "entries": found}, DISTANCES)


def train(run: Path, name: str, args: Args) -> None:
    """``certus train`` or ``certus resume``, unless it is complete."""
    if (run / "result.json").exists():
        return
    entry, command = ENTRIES[name], ["resume", str(run)]
    if not (run / "run.json").exists():
        epochs = max(1, round(args.share * entry.epochs))
        command = ["train", name, "--model", entry.model, "--method", "erm", "--noise", str(args.sigma)]
        command += ["--epochs", str(epochs), "--lr", str(entry.learning_rate), "--seed", str(args.seed)]
        command += ["--schedule", entry.schedule] if epochs > 1 else []
        command += ["-o", str(run)]
    subprocess.run([sys.executable, "-m", "certus", *command], check=True)


def compare(trained: TrainedRun, name: str, args: Args) -> dict[str, Any]:
    """The three bounds at every distance, for both kinds, and what ours cost."""
    model, noise = Predictor.of(trained.loss.model), Noise(args.sigma, SquaredL2())
    entry = ENTRIES[name]
    chosen = {
        part: Subset.of(
            split, f"{name}@{part}", _few(count, len(split), args), seed=args.seed, stratify=False
        )
        for part, split, count in (
            ("calibration", trained.data.calibration, entry.calibration),
            ("test", trained.data.test, entry.samples),
        )
    }
    weights = digest(dict(trained.loss.model.state_dict()))
    memory = DrawMemory(args.runs / name / "unfinished", [weights, args.sigma, args.draws, args.seed], print)

    def ask(data: Split, stream: int, kept: DrawMemory | None) -> Observed:
        return observe(model, data, noise, copies=args.draws, seed=args.seed, stream=stream, memory=kept)

    # The speed by itself, so that it is the same whether anything was kept or not.
    probed = chosen["test"].data[:_PROBED]
    began = time.process_time()
    ask(probed, CERTIFIED, None)
    speed = args.draws * len(probed) / (time.process_time() - began)
    before = ask(chosen["calibration"].data, CALIBRATION, memory).errors
    seen = ask(chosen["test"].data, CERTIFIED, memory).errors
    assert before is not None
    assert seen is not None
    rows, planning = bounds(before, seen, args)
    predictions = args.draws * sum(len(part.data) for part in chosen.values())
    numbers = probed.inputs[0].numel()
    memory.forget()
    return {
        **asdict(entry),
        "parameters": sum(one.numel() for one in trained.loss.model.parameters()),
        "seconds of training": round(_seconds(args.runs / name), 1),
        "rows": {part: one.as_json() for part, one in chosen.items()},
        "bounds version": BOUNDS_VERSION,
        "mean error in noise": float((seen / args.draws).mean()),
        "bounds": rows,
        "predictions": predictions,
        "predictions per second": round(speed),
        "megabytes of noisy copies": round(4 * min(16_384, 2**24 // numbers) * numbers / 2**20, 1),
        "seconds of planning": round(planning, 2),
        "share of planning": round(planning / (planning + predictions / speed), 4),
    }


def bounds(before: Tensor, seen: Tensor, args: Args) -> tuple[list[dict[str, Any]], float]:
    """Every kind at every distance, and the processor's seconds that our plans took."""
    rhos, rows, planning = [one**2 for one in DISTANCES], [], 0.0
    order = random_order(len(seen), args.seed)
    for kind, ballot in KINDS.items():
        began = time.process_time()
        errors = before.double().numpy()
        stakes = make_plan(ballot, errors, args.draws, rhos, args.sigma, samples=len(seen), failure=FAILURE)
        planning += time.process_time() - began
        found = {
            "ours": upper_means(stakes, Observed(None, seen, None), order, FAILURE),
            "clopper": clopper(stakes, ballot, before, seen[order], args.draws, args.sigma, FAILURE),
            "affine": affine(ballot, seen[order], args.draws, args.sigma, FAILURE),
        }
        for distance, rho in zip(DISTANCES, rhos, strict=True):
            highs = {
                name: min(1.0, *(gamma * rho + mean for gamma, mean in one.items()))
                for name, one in found.items()
            }
            rows.append({"kind": kind, "distance": distance, **highs})
            print(f"{kind:>10}  √ρ {distance:<5} " + "  ".join(f"{n} {v:.4f}" for n, v in highs.items()))
    return rows, planning


def deterministic(trained: TrainedRun, name: str, args: Args) -> dict[str, Any]:
    """The bracket of the network itself, without noise: its population's error, with the same confidence."""
    count = ENTRIES[name].read
    settings = CertifySettings(
        rho=tuple(one**2 for one in DISTANCES),
        confidence=1 - FAILURE,
        samples=_few(count, len(trained.data.test), args),
        seed=args.seed,
        balls=0,
        refine=0,
        attack_steps=2,
    )
    began = time.process_time()
    found = certify_run(trained, settings)
    brackets = [found.bracket(rho) for rho in settings.rho]
    return {
        "rows": found.about["rows"],
        "seconds": round(time.process_time() - began, 1),
        "brackets": [
            {
                "distance": one.distance,
                "error_low": one.error_low,
                "error_high": one.error_high,
                "population_error_low": one.population_error_low,
                "population_error": one.population_error,
            }
            for one in brackets
        ],
    }


def _seconds(run: Path) -> float:
    """The epochs of a training, by the wall clock."""
    lines = (run / METRICS).read_text().splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))


def _few(count: int, most: int, args: Args) -> int:
    return min(most, max(20, round(args.share * count)))


if __name__ == "__main__":
    options = read_options(Args, __doc__)
    perform(page if options.page else main, options)
