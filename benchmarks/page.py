"""The benchmark page: ratios of processor time, measured in one run, as medians with 95% intervals.

    python -m benchmarks.page                        # or make bench: under 20 minutes on an idle machine
    python -m benchmarks.page --rows "a PGD step"    # rows whose names begin so; the others stay as they are

Each row compares one thing with a baseline. Both take turns, on one thread, timed by the processor's clock,
which other work on the machine disturbs less than the wall's. A peer that is not installed is a row "not
installed". ``measured.json`` has every number, with machine and versions; README.md and ratios.png show them.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import how_measured
from benchmarks.attacks import MAKERS, median_interval
from certus.display.canvas import save_figure
from certus.storage.write import write_atomically, write_json

Work = Callable[[], object]
Case = tuple[Work, Work]
"""What is measured, and its baseline."""

_BATCH, _GAMMA, _STEPS = 64, 0.3846, 15


@dataclass(frozen=True)
class Args:
    turns: Annotated[int, "how often each row is measured"] = 9
    scale: Annotated[float, "of the sizes, for a quick look"] = 1.0
    rows: Annotated[str, "beginning of the names of the rows to measure; all if empty"] = ""
    output: Annotated[Path, OUTPUT] = Path("results/benchmarks/measured.json")


@dataclass(frozen=True)
class Row:
    """Attributes: name and baseline, in words; package: that must be installed; turns: of all, as a share."""

    name: str
    baseline: str
    make: Callable[[Args], Case]
    package: str | None = None
    turns: float = 1.0


# --- Training -----------------------------------------------------------------------------------------


@functools.cache
def _images(count: int) -> tuple[Tensor, Tensor]:
    """Digits of 8 × 8 pixels, enlarged to the 28 × 28 that the paper's network takes."""
    data = certus.datasets.digits().train
    images = nn.functional.interpolate(data.inputs.reshape(-1, 1, 8, 8), size=(28, 28), mode="bilinear")
    return images[:count], data.targets[:count]


class _Learner:
    """The paper's MNIST network in training by one method, a step at a time, after 30 steps."""

    def __init__(self, method: Any, steps: int) -> None:
        torch.manual_seed(0)
        self.loss, self.method, self.place = certus.ModelLoss(certus.models.mnist_cnn()), method, 0
        self.optimizer = torch.optim.Adam(self.loss.model.parameters(), 1e-3)
        for _ in range(steps):
            self()

    def __call__(self) -> None:
        inputs, targets = _images(1024)
        here = torch.arange(self.place, self.place + _BATCH) % len(inputs)
        self.place += _BATCH
        moved = inputs[here] if self.method is None else self.method(self.loss, inputs[here], targets[here])
        self.loss(moved, targets[here]).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _hand_written(loss: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    """The paper's ascent in a plain loop: 15 gradients of ℓ − γc."""
    moved = inputs.clone()
    for step in range(_STEPS):
        leaf = moved.detach().requires_grad_()
        height = loss(leaf, targets) - _GAMMA * ((leaf - inputs) ** 2).flatten(1).sum(1)
        (slope,) = torch.autograd.grad(height.sum(), leaf)
        moved = leaf.detach() + slope / (2 * _GAMMA) / (step + 1) ** 0.5
    return moved


def _training(method: Callable[[], Any]) -> Callable[[Args], Case]:
    def make(args: Args) -> Case:
        steps = max(1, round(30 * args.scale))
        return _Learner(method(), steps), _Learner(None, steps)

    return make


def _attack(name: str) -> Callable[[Args], Case]:
    def make(args: Args) -> Case:
        torch.manual_seed(0)
        model = certus.models.mnist_cnn().eval()
        inputs, targets = _images(1024)
        steps = max(1, round(_STEPS * args.scale))
        ask = (model, inputs[:_BATCH], targets[:_BATCH], 2.0, 1.0, steps)
        return MAKERS[name](*ask), MAKERS["bare gradients"](*ask)

    return make


# --- Certificates -------------------------------------------------------------------------------------


def _certificate(args: Args, rows: int, inputs: int = 10, depth: int = 1, **options: Any) -> Work:
    """Certify rows of some dimension with a network of 32 softplus units a layer."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(max(8, round(rows * args.scale)), inputs, generator=generator)
    labels = (points[:, 0] + points[:, 1] * points[:, 2] > 0).long()
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for layer in range(depth):
        layers += [nn.Linear(32 if layer else inputs, 32), nn.Softplus()]
    model = nn.Sequential(*layers, nn.Linear(32, 2))
    return lambda: certus.certify(model, (points, labels), rho=(0.001, 0.01), progress=False, **options)


def _certificates(rows: int, **options: Any) -> Callable[[Args], Case]:
    return lambda args: (_certificate(args, rows, **options), _certificate(args, 512))


def _smoothed(args: Args) -> Case:
    inputs, targets = _images(max(8, round(64 * args.scale)))
    torch.manual_seed(0)
    model = certus.models.mnist_cnn().eval()
    copies = inputs.repeat_interleave(100, 0)

    def predict() -> None:
        with torch.no_grad():
            for part in copies.split(1024):
                model(part)

    def certify() -> None:
        certus.certify_smoothed(
            model,
            (inputs, targets),
            rho=0.01,
            sigma=0.25,
            attack_steps=0,
            progress=False,
            calibration=(inputs[:8], targets[:8]),
        )

    return certify, predict


# --- Start-up -----------------------------------------------------------------------------------------


def _started(*words: str) -> Work:
    line = [sys.executable, *words]
    return lambda: subprocess.run(line, capture_output=True, check=False)


def _start(*words: str) -> Callable[[Args], Case]:
    return lambda args: (_started("-m", "certus", *words), _started("-c", "import torch"))


ROWS = (
    Row("a WRM step", "an ERM step", _training(lambda: certus.WRM(gamma=_GAMMA))),
    Row("a WRM step by hand, 15 gradients", "an ERM step", _training(lambda: _hand_written)),
    Row("a PGD step of certus", "bare gradients", _attack("certus")),
    Row("a PGD step of torchattacks", "bare gradients", _attack("torchattacks"), "torchattacks"),
    Row("a PGD step of foolbox", "bare gradients", _attack("foolbox"), "foolbox"),
    Row("a PGD step of ART", "bare gradients", _attack("ART"), "art"),
    Row("certify 1,024 rows", "certify 512 rows", _certificates(1024), turns=0.4),
    Row("certify 8,192 rows", "certify 512 rows", _certificates(8192), turns=0.2),
    Row("certify 64 inputs", "certify 10 inputs", _certificates(512, inputs=64), turns=0.4),
    Row("certify 2 hidden layers", "certify 1 layer", _certificates(512, depth=2), turns=0.4),
    Row("certify 4 hidden layers", "certify 1 layer", _certificates(512, depth=4), turns=0.4),
    Row("smoothing, 100 draws", "the same predictions alone", _smoothed, turns=0.4),
    Row("start: certus runs", "import torch", _start("runs", "nowhere"), turns=0.6),
    Row("start: certus data list", "import torch", _start("data", "list"), turns=0.6),
    Row("start: a wrong option", "import torch", _start("train", "--bogus"), turns=0.6),
)


def main(args: Args) -> None:
    torch.set_num_threads(1)
    known = json.loads(args.output.read_text()) if args.output.exists() else {}
    rows = {row.name: known.get("rows", {}).get(row.name) for row in ROWS}
    for row in ROWS:
        if row.name.startswith(args.rows):
            rows[row.name] = measured(row, args)
            print(row.name, rows[row.name], flush=True)
    content = {"measured": how_measured(args), "rows": {name: row for name, row in rows.items() if row}}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.output, content)
    write_page(args.output.parent, content)


def measured(row: Row, args: Args) -> dict[str, Any]:
    """Ratios of neighbours in time: the machine's speed drifts, and a ratio of neighbours does not."""
    if row.package is not None and find_spec(row.package) is None:
        return {"baseline": row.baseline, "not_installed": row.package}
    work, baseline = row.make(args)
    turns = max(3, round(args.turns * row.turns))
    times = [(_seconds(work), _seconds(baseline)) for _ in range(turns + 1)][1:]  # the first warms up
    low, median, high = median_interval([own / other for own, other in times])
    return {
        "baseline": row.baseline,
        "ratio": {"low": low, "median": median, "high": high},
        "seconds": statistics.median(own for own, _ in times),
        "turns": turns,
    }


def _seconds(work: Work) -> float:
    """Processor seconds of this process and of its children that have ended."""
    start = time.process_time() + _children()
    work()
    return time.process_time() + _children() - start


def _children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


_PAGE = f"""<!-- Written by `python -m benchmarks.page`; changes made here are lost. -->

# Benchmarks

Processor time as a multiple of a baseline that was measured in turn with it: the median, and order statistics
that enclose it with 95% (all values where they are few). Seconds are those of this machine.

| row | baseline | ratio | processor seconds |
|---|---|---|---|
{{rows}}

![Ratios](ratios.png)

Measured on {{date}}, one thread, {{where}}; {{packages}}.

- *WRM*: the paper's MNIST network on enlarged digits, batches of {_BATCH}, γ = {_GAMMA}, after 30 steps.
- *PGD*: {_STEPS} steps in L2, of the same network.
- *Certificates*: networks with layers of 32 softplus units, two values of ρ, all defaults.
- Not compared: dro and skwdro, whose networks and solvers differ; memory: `python -m benchmarks.rows`.
"""


def write_page(folder: Path, content: dict[str, Any]) -> None:
    """README.md and ratios.png."""
    about, lines = content["measured"], []
    for name, row in content["rows"].items():
        if "not_installed" in row:
            lines.append(f"| {name} | {row['baseline']} | not installed ({row['not_installed']}) | |")
            continue
        ratio = row["ratio"]
        interval = f"{ratio['median']:.3g} [{ratio['low']:.3g}, {ratio['high']:.3g}]"
        lines.append(f"| {name} | {row['baseline']} | {interval} | {row['seconds']:.3g} |")
    machine, versions = about["machine"], about["versions"]
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = _PAGE.format(rows="\n".join(lines), date=about["date"], where=where, packages=packages)
    write_atomically(folder / "README.md", text.encode())
    save_figure(_figure(content["rows"]), folder / "ratios.png")


def _figure(rows: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    shown = {name: row["ratio"] for name, row in rows.items() if "ratio" in row}
    figure = Figure(figsize=(7, 0.35 * len(shown) + 1), layout="constrained")
    axes = figure.add_subplot()
    for place, ratio in enumerate(shown.values()):
        axes.barh(place, ratio["median"], color="#3b6ea5")
        axes.plot([ratio["low"], ratio["high"]], [place, place], color="black", linewidth=1.5)
    axes.set_yticks(range(len(shown)), list(shown))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1.0, color="grey", linewidth=1)
    axes.set_xlabel("processor time, as a multiple of the baseline")
    return figure


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
