"""Deep networks that are 1-Lipschitz by construction: certified accuracy and error, in float32 too.

One network for CIFAR-10, and two for MNIST. An audit proves the constants of each network, and its accuracy
on all test images. A certificate of some images of MNIST adds the loss, the population, and errors that were
found; PGD with restarts tries to leave certified radii. Peers are networks of digits with layers of other
libraries (``studies.lipschitz_peers``).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import certus
from certus._eval_mode import eval_mode
from certus._format import at_least, at_most
from certus.attacks import PGD, minimum_norm_attack
from certus.certificates import audit
from certus.data import Samples, Subset
from certus.display.figures import Curve, Panel, epoch_ticks, sweep_figure
from certus.errors import ContradictionError
from certus.layers import UnitRows, plain
from certus.losses import CrossEntropy, ModelLoss
from certus.runs.loaded_run import LoadedRun
from certus.runs.records import METRICS
from certus.runs.settings import Settings
from certus.storage.tensors import digest
from certus.storage.write import write_atomically
from certus.training import Callback, TrainingState
from studies import smoothing
from studies.lipschitz_peers import EPSILONS, PEERS, measure_peer
from studies.page import markdown_table
from studies.study import (
    Measured,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
)
from studies.workspace import Workspace, digest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -------------------- Training --------------------


def lipschitz_settings(**others: Any) -> Settings:
    """Return the settings of ``certus train``; the given options override the common ones."""
    common = {
        "model": "lipschitz:128x10",
        "method": "erm",
        "batch_size": 256,
        "schedule": "onecycle",
        "learning_rate": 0.0015,
        "temperature": 0.25,
        "precision": "bfloat16",
        "compile": True,
    }
    return Settings.chosen(**{**common, **others})


def margin_radii(model: nn.Sequential, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return (n,) min_k (F_y − F_k)/‖w_k − w_y‖ as float32 computes it: *estimated* radii."""
    head = model[-1]
    assert isinstance(head, UnitRows)
    with torch.no_grad(), eval_mode(model):
        outputs = torch.cat([model(part) for part in inputs.split(256)])
        apart = torch.cdist(head.rows, head.rows)[targets]
    leads = (outputs.gather(1, targets[:, None]) - outputs) / apart
    return leads.scatter(1, targets[:, None], torch.inf).amin(1)


@dataclass
class RadiusCurve(Callback):
    """Accuracy within each distance after every epoch, *estimated* on held-out images.

    ``path`` gets one entry per epoch; the entries before a checkpoint are kept when a training goes on.
    """

    path: Path
    data: Samples
    epsilons: tuple[float, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        if self.path.exists():
            self.rows = [row for row in json.loads(self.path.read_text()) if row["epoch"] <= state.epoch]

    def on_epoch_end(self, state: TrainingState) -> None:
        assert isinstance(state.model, nn.Sequential)
        assert self.data.targets is not None
        radii = margin_radii(state.model, self.data.inputs, self.data.targets)
        shares = {f"{each:g}": float((radii > each).double().mean()) for each in (0.0, *self.epsilons)}
        self.rows.append({"epoch": state.epoch, "within": shares})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(self.rows).encode())


HELD_OUT = 2_000


def trained_network(workspace: Workspace, plan: Plan) -> tuple[LoadedRun, list[dict[str, Any]]]:
    """Train a network or load it; return it with its accuracies by epoch."""
    settings = plan.settings
    path = workspace.folder / "curves" / f"{digest_of(settings)}.json"
    held_out = certus.datasets.load(plan.data).calibration[:HELD_OUT]
    curve = RadiusCurve(path, held_out, plan.epsilons)
    trained = replace(workspace, watch=lambda: [curve, *workspace.watch()]).network(settings)
    return trained, json.loads(path.read_text())


# -------------------- Measurements --------------------


@dataclass(frozen=True)
class Plan:
    """A network and what is measured of it.

    Attributes:
        epsilons: L2 distances of the certified accuracy; distances: √ρ of the error rate.
        images: test images of the audit; few: of the certificate and the attacks; None for all.
    """

    data: str
    margin: float
    epochs: int
    epsilons: tuple[float, ...]
    translate: int = 1
    flip: bool = False
    seed: int = 0
    model: str = "lipschitz:128x10"
    images: int | None = None
    few: int = 200
    distances: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.32, 0.5)
    steps: int = 20
    restarts: int = 3
    learning_rate: float = 0.0015
    precision: str = "bfloat16"
    compile: bool = True

    @property
    def settings(self) -> Settings:
        names = (
            *("data", "margin", "epochs", "translate", "flip", "seed", "model"),
            *("learning_rate", "precision", "compile"),
        )
        return lipschitz_settings(**{name: getattr(self, name) for name in names})

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Plan:
        """Construct from JSON types."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        return Plan(**values)


def _test_images(trained: LoadedRun, plan: Plan, count: int | None) -> Subset:
    return Subset.of(trained.data.test, f"{plan.data}@test", count, seed=0, stratify=False)


def measure_audit(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train; prove constants, certified accuracies and error rates on the test images."""
    plan = Plan.of(settings)
    trained, curve = trained_network(workspace, plan)
    model, chosen = trained.loss.model, _test_images(trained, plan, plan.images)
    history = [json.loads(line) for line in (trained.run.path / METRICS).read_text().splitlines()]
    began, data = time.process_time(), (chosen.data.inputs, chosen.data.targets)
    result = audit(model, data, epsilon=[*plan.epsilons, *plan.distances])
    radii = [asdict(each) for each in result.radii]
    within, errors = radii[: len(plan.epsilons)], radii[len(plan.epsilons) :]
    return {
        "data": plan.data,
        "model": plan.model,
        "margin": plan.margin,
        "epochs": plan.epochs,
        "seed": plan.seed,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "weights": digest(dict(model.state_dict())),
        "rows": chosen.words,
        "images": len(chosen.data),
        "clean": result.accuracy,
        "output lipschitz": result.lipschitz,
        "margin lipschitz": result.margin,
        "body lipschitz": _body(model, tuple(chosen.data.inputs.shape[1:])),
        "within": [{name: row[name] for name in ("epsilon", "proven", "float32")} for row in within],
        "errors": [{"distance": row["epsilon"], "proven": row["error"]} for row in errors],
        "evidence": result.evidence,
        "assumptions": list(result.assumptions),
        "seconds of the audit": round(time.process_time() - began, 1),
        "seconds of training": round(sum(entry["seconds"] for entry in history), 1),
        "curve": [
            {**row, "loss": entry["loss"], "training accuracy": entry["accuracy"]}
            for row, entry in zip(curve, history, strict=True)
        ],
    }


def _body(model: nn.Module, shape: tuple[int, ...]) -> float:
    """Return the proven constant of all layers before the head."""
    assert isinstance(model, nn.Sequential)
    bound = certus.bounds.input_smoothness(plain(model[:-1]), input_shape=shape)
    assert bound.output_lipschitz is not None
    return float(bound.output_lipschitz)


def measure_attacks(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Certify some test images and attack them; raise ``ContradictionError`` for an error within a radius."""
    plan = Plan.of(settings)
    trained, _ = trained_network(workspace, plan)
    model, chosen = plain(trained.loss.model), _test_images(trained, plan, plan.few)
    inputs, targets = chosen.data.inputs, chosen.data.targets
    began = time.process_time()
    certificate = certus.certify(
        model,
        (inputs, targets),
        rho=[distance**2 for distance in plan.distances],
        epsilon=list(plan.epsilons),
        confidence=0.95,
        local_radii=0,
        gamma_rounds=0,
        attack_steps=3,
    )
    seconds = time.process_time() - began
    names = ("distance", "loss_low", "loss_high", "error_low", "error_high", "population_loss")
    brackets = [certificate.bracket(rho) for rho in certificate.rhos]
    assert certificate.proven_error_cost is not None
    radii = certificate.proven_error_cost.sqrt()
    loss, began = ModelLoss(model, CrossEntropy()), time.process_time()
    accuracies = []
    for epsilon in plan.epsilons:
        attack = PGD(epsilon, norm=2, steps=plan.steps, restarts=plan.restarts)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            moved = attack.perturb(loss, inputs, targets).inputs
            with torch.no_grad():
                wrong = model(moved).argmax(1) != targets
        if bool((wrong & (radii > epsilon)).any()):
            raise ContradictionError("PGD found an error within a certified radius: one of them is wrong.")
        both = certificate.accuracy_bracket(epsilon)
        accuracies.append(
            {
                "epsilon": epsilon,
                "certified": both.certified,
                "nearest": both.attacked,
                "pgd": float((~wrong).double().mean()),
            }
        )
    nearest = minimum_norm_attack(loss, inputs[:100], targets[:100], steps=plan.steps, rounds=8)
    if bool((nearest.distance < radii[:100] * (1 - 1e-5)).any()):
        raise ContradictionError("An error was found within a certified radius: one of them is wrong.")
    return {
        "rows": chosen.words,
        "images": len(chosen.data),
        "evidence": certificate.evidence,
        "brackets": [{name: getattr(row, name) for name in (*names, "population_error")} for row in brackets],
        "accuracies": accuracies,
        "steps": plan.steps,
        "restarts": plan.restarts,
        "seconds of the certificate": round(seconds, 1),
        "seconds of PGD": round(time.process_time() - began, 1),
    }


# -------------------- The page --------------------

_SHORT, _FAR = (0.3, 1.0, 1.58), (36 / 255, 72 / 255, 108 / 255)
_DENSE: dict[str, Any] = {
    "model": "lipschitz:256x4:dense",
    "learning_rate": 0.006,
    "precision": "float32",
    "compile": False,
}
_WHOLE = {
    "cifar10": Plan("cifar10", 0.2, 16, _FAR, translate=3, flip=True),
    "mnist-near": Plan("mnist", 0.5, 12, _SHORT, **_DENSE),
    "mnist-far": Plan("mnist", 2.2, 8, _SHORT, **_DENSE),
}
_QUICK = {
    "digits": Plan(
        *("digits", 0.5, 3, (0.1, 0.5)),
        model="lipschitz:16x3",
        few=40,
        distances=(0.05, 0.1),
        steps=3,
        compile=False,
    )
}
_ATTACKED = ("mnist-far", "digits")
_AIMS = {
    "cifar10": (36 / 255, 0.53, "53%"),
    "mnist-far": (1.58, 0.74, "74%"),
    "mnist-near": (0.3, 0.976, "97.6%"),
}
"""Distance and certified accuracy that was aimed at beforehand."""

_CLAIMED: dict[str, tuple[float | None, float | None, float | None, float | None]] = {
    "LiResNet, with generated data": (None, 78.1, None, None),
    "LipNeXt": (81.5, 71.2, 59.2, 45.9),
    "BRONet": (None, 70.6, 57.2, 42.5),
    "LiResNet": (None, 69.8, 56.3, 42.9),
    "SOC-M, 24 hours of a GPU": (None, 66.3, None, None),
    "CPL-M": (None, 65.1, None, None),
    "LOT-M, 132 epochs of a GPU": (72.0, 58.7, None, None),
    "Cayley": (None, 59.2, None, None),
}
"""Per cent of CIFAR-10's test images, as published: clean, and within 36, 72 and 108 of 255."""


def _per_cent(share: float, *, proven: bool = True) -> str:
    """Format a share of images; a proven one is never rounded up."""
    per_cent = 100 * share
    # 0.3383 is 3,383 of 10,000 images: a binary fraction is no reason to print 33.82.
    return f"{math.floor(100 * per_cent + 1e-6) / 100 if proven else per_cent:.2f}"


_HEAD = """\
The share of the test images ({images:,} of each data set) that are *proven* to be classified correctly
wherever each moves by at most ε in L2, in all of space; and, in parentheses, the share that is proven for the
network as float32 computes it, in any order of summation
([how](../../docs/lipschitz.md#float32-in-use)). All constants, margins and rounding are checked by the
kernel. No noise, and no level of confidence."""

_PEERS_HEAD = """\
## Audits of other libraries

Networks of digits with layers of orthogonium 0.0.4 and deel-torchlip 1.0.5, trained here, exported as plain
weights, and audited against a claimed constant of 1 on all {images} test rows. *Claimed* is the accuracy that
the constant would give; *proven* is what the kernel proves; *float32* is for the network in use."""

_CHECK = """\
## Check them again

The final weights are in this folder. No training is needed to audit them:

```sh
{commands}
```"""


def lipschitz_text(measured: Measured) -> str:
    """Return the tables of accuracies, errors, attacks, epochs, costs and audits, and the commands."""
    audits = {name: row for name, row in measured.items() if "curve" in row}
    parts = [_HEAD.format(images=next(iter(audits.values()))["images"])]
    for data in dict.fromkeys(row["data"] for row in audits.values()):
        parts += [f"## {data}", _accuracy_table({k: v for k, v in audits.items() if v["data"] == data})]
        if data == "cifar10":
            parts.append(_CLAIMS_WORDS)
    parts += ["## Error rates", _errors(measured, audits)]
    if any(name.endswith("-attacked") for name in measured):
        parts += ["## Attacks", _attacks(measured)]
    parts += ["## Epochs and cost", _epochs(audits)]
    if peers := {name: row for name, row in measured.items() if name.startswith("peer-")}:
        parts += [_peers(peers)]
    commands = "\n".join(
        f"certus audit {row['model']} --weights results/lipschitz/{name}.safetensors --data {row['data']} "
        + " ".join(f"--epsilon {_fraction(entry['epsilon'])}" for entry in row["within"])
        + f" -o audit-{name}"
        for name, row in audits.items()
        if row["seed"] == 0
    )
    return "\n\n".join([*parts, _CHECK.format(commands=commands)])


_CLAIMS_WORDS = """\
The other figures are as published, and are claims: they rest on operator norms by power iteration, or on
truncated series, in float32. A dash means that no figure is at hand."""


def _fraction(epsilon: float) -> str:
    """Format a distance; those of CIFAR-10 as fractions of 255.

    >>> _fraction(36 / 255), _fraction(0.3)
    ('36/255', '0.3')
    """
    steps = epsilon * 255
    return f"{steps:.0f}/255" if epsilon < 1 and abs(steps - round(steps)) < 1e-9 else f"{epsilon:g}"


def _accuracy_table(audits: Measured) -> str:
    first = next(iter(audits.values()))
    rows = []
    for name, row in audits.items():
        cells = [f"{_per_cent(entry['proven'])} ({_in_float32(entry['float32'])})" for entry in row["within"]]
        rows.append([f"certus, {name}, proven", _per_cent(row["clean"], proven=False), *cells])
    if first["data"] == "cifar10":
        for name, figures in _CLAIMED.items():
            rows.append([f"{name}, claimed", *("–" if share is None else f"{share}" for share in figures)])
    head = [f"ε = {_fraction(entry['epsilon'])}" for entry in first["within"]]
    return markdown_table(["per cent of the test images", "clean", *head], rows)


def _in_float32(share: float | None) -> str:
    return "not covered" if share is None else _per_cent(share)


def _errors(measured: Measured, audits: Measured) -> str:
    """Return the table of proven error rates within √ρ, the certificate by smoothing among them."""
    distances = [entry["distance"] for entry in next(iter(audits.values()))["errors"]]
    rows = []
    for name, row in audits.items():
        cells = [
            at_most(entry["proven"], 3) + (" (vacuous)" if entry["proven"] >= 1 else "")
            for entry in row["errors"]
        ]
        rows.append([f"{name}: proven, all {row['images']:,} images", *cells])
        if few := measured.get(f"{name}-attacked"):
            brackets = few["brackets"]
            cells = [f"{at_least(row['error_low'], 3)} – {at_most(row['error_high'], 3)}" for row in brackets]
            rows.append([f"{name}: attained – proven, {few['images']} images", *cells])
            cells = [at_most(row["population_error"], 3) for row in brackets]
            rows.append([f"{name}: population, confidence 0.95, {few['images']} images", *cells])
    if noisy := measured.get("smoothed"):
        noise = {row["distance"]: row["ours"] for row in noisy["bounds"] if row["kind"] == "error"}
        cells = [at_most(noise[each], 3) if each in noise else "–" for each in distances]
        words = f"{noisy['data']}: {noisy['model']} under noise of σ = {noisy['sigma']:g}, confidence 0.95"
        rows.append([words, *cells])
    table = markdown_table(["error within √ρ =", *(f"{each:g}" for each in distances)], rows)
    words = "The mean error rate over all distributions within √ρ of the test images."
    if noisy:
        words = (
            f"{words} The last row is a certificate by smoothing ([smoothing](../smoothing/README.md)): of "
            "another network, for predictions under noise, and it may be wrong with a probability of 0.05. "
            "The others are about predictions without noise, and only those of the population have a level "
            "of confidence."
        )
    return f"{words}\n\n{table}"


def _attacks(measured: Measured) -> str:
    rows = []
    for name, row in measured.items():
        if not name.endswith("-attacked"):
            continue
        for entry in row["accuracies"]:
            shares = [
                _per_cent(entry["certified"]),
                _per_cent(entry["nearest"], proven=False),
                _per_cent(entry["pgd"], proven=False),
            ]
            rows.append([name.removesuffix("-attacked"), _fraction(entry["epsilon"]), *shares])
    first = next(row for name, row in measured.items() if name.endswith("-attacked"))
    words = (
        f"Test images ({first['images']}, at random) that no attack moved to an error within ε, beside those "
        f"that are proven: the search for the nearest error of `certify`, and PGD with {first['restarts']} "
        f"restarts of {first['steps']} steps. No error was found within the certified radius of any image, "
        "nor by a minimum-norm attack on 100 of them; the measurement would have failed."
    )
    table = markdown_table(["network", "ε", "proven, %", "left by the search, %", "left by PGD, %"], rows)
    return f"{words}\n\n{table}"


def _epochs(audits: Measured) -> str:
    rows = []
    for name, row in audits.items():
        last = row["curve"][-1]
        halves = [row["curve"][(len(row["curve"]) * part) // 4 - 1] for part in (1, 2, 3)]
        target = f"{_AIMS[name][0]:g}" if name in _AIMS else list(last["within"])[1]
        shares = [_per_cent(entry["within"][target], proven=False) for entry in (*halves, last)]
        cost = f"{row['seconds of training'] / 60:.1f}"
        rows.append(
            [name, f"{row['parameters']:,}", str(row["epochs"]), cost, _fraction_of(target, row), *shares]
        )
    words = (
        f"Accuracy within ε on {HELD_OUT:,} held-out images, *estimated*, after each quarter of the epochs; "
        "wall time of training in minutes, on two cores that other work was using too."
    )
    head = ["network", "weights", "epochs", "minutes", "ε", "¼", "½", "¾", "end"]
    return f"{words}\n\n{markdown_table(head, rows)}"


def _peers(peers: Measured) -> str:
    rows = []
    for name, row in peers.items():
        for entry in row["within"]:
            rows.append(
                [
                    name.removeprefix("peer-"),
                    f"{at_most(row['output lipschitz'], 9)}",
                    _fraction(entry["epsilon"]),
                    _per_cent(entry["claimed"], proven=False),
                    _per_cent(entry["proven"]),
                    _in_float32(entry["float32"]),
                ]
            )
    head = ["library", "constant, proven", "ε", "claimed, %", "proven, %", "float32, %"]
    words = _PEERS_HEAD.format(images=next(iter(peers.values()))["images"])
    conclusion = (
        "The constant falls short of the claim by rounding, and no accuracy does."
        if all(entry["proven"] >= entry["claimed"] for row in peers.values() for entry in row["within"])
        else "Where *proven* is below *claimed*, the proof falls short of the claim."
    )
    assumed = sorted({name for row in peers.values() for name in row["assumptions"]})
    if assumed:
        conclusion += f" The float32 figures of convolutions *assume*: {'; '.join(assumed)}."
    return f"{words}\n\n{markdown_table(head, rows)}\n\n{conclusion}"


def lipschitz_verdicts(measured: Measured) -> list[Verdict]:
    """Compare certified accuracies with the aims, and the error of CIFAR-10."""
    verdicts = []
    for name, (epsilon, aim, words) in _AIMS.items():
        if (row := measured.get(name)) is None:
            continue
        entry = next(entry for entry in row["within"] if entry["epsilon"] == epsilon)
        ours = {"clean": row["clean"], "certified": entry["proven"], "in float32": entry["float32"]}
        verdicts.append(
            Verdict(
                name=name,
                label="",
                claim=f"{row['data']}: are at least {words} certified within ε = {_fraction(epsilon)}?",
                rule=f"at least {words} of all test images",
                outcome=outcome_of(entry["proven"] >= aim),
                ours={key: Quantity(value, places=2, percent=True) for key, value in ours.items()},
                evidence=recorded_evidence(row),
            )
        )
    if row := measured.get("cifar10"):
        error = next(entry["proven"] for entry in row["errors"] if entry["distance"] == 0.1)
        verdicts.append(
            Verdict(
                name="cifar10-error",
                label="",
                claim="cifar10: is the error rate at most 0.63 within √ρ = 0.1, without noise?",
                rule="a bound of at most 0.63",
                outcome=outcome_of(error <= 0.63),
                ours={"error": Quantity(error, places=3, side="at most")},
                evidence=recorded_evidence(row),
            )
        )
    return verdicts


def draw_curves(measured: Measured) -> Figure:
    """Draw the estimated accuracies of each network by epoch."""
    panels = []
    for name, row in measured.items():
        if "curve" not in row or row["seed"] != 0:
            continue
        epochs = [float(entry["epoch"]) for entry in row["curve"]]
        curves = {}
        for epsilon in row["curve"][0]["within"]:
            values = [entry["within"][epsilon] for entry in row["curve"]]
            words = "clean" if epsilon == "0" else f"ε = {_fraction_of(epsilon, row)}"
            curves[words] = Curve(epochs, values, values, values)
        ticks = epoch_ticks(len(epochs))
        panels.append(Panel(name, "epoch", "accuracy, held-out images", curves, ticks=ticks))
    return sweep_figure(panels, "Accuracy within ε by epoch (estimated)")


def _fraction_of(epsilon: str, row: Mapping[str, Any]) -> str:
    """Format the distance that a curve stored with six digits."""
    nearest = min((entry["epsilon"] for entry in row["within"]), key=lambda each: abs(each - float(epsilon)))
    return _fraction(nearest)


def _parts(scale: Scale) -> list[Part]:
    plans = _QUICK if scale is Scale.QUICK else _WHOLE
    parts = []
    for name, plan in plans.items():
        data = () if plan.data == "digits" else (plan.data,)
        settings = json.loads(json.dumps(asdict(plan)))
        parts.append(Part(name, settings, measure_audit, effort=60.0 * plan.epochs, data=data))
        if name in _ATTACKED:
            parts.append(Part(f"{name}-attacked", settings, measure_attacks, effort=200.0, data=data))
    if scale is Scale.FULL:
        noisy = next(part for part in smoothing.STUDY.parts(scale) if part.name == "cifar10-noisy")
        parts.append(replace(noisy, name="smoothed", home=(smoothing.STUDY, noisy.name)))
    for library in PEERS:
        about = {"library": library, "epsilons": list(EPSILONS)}
        parts.append(Part(f"peer-{library}", about, measure_peer))
    return parts


STUDY = Study(
    name="lipschitz",
    title="Deep networks with a proof",
    labels=(),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 120},
    parts=_parts,
    pictures=(Picture("curves", "Accuracy within ε by epoch, on held-out images.", draw_curves),),
    verdicts=lipschitz_verdicts,
    text=lipschitz_text,
    scope={Scale.QUICK: "Digits alone, 3 epochs, attacks on 40 rows."},
    beyond=True,
)
