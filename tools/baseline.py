"""Show that a change of structure changes no number.

Compare trainings, certificates and attacks of this checkout with those of another, measured in one run:

    git worktree add ../before COMMIT
    python -m tools.baseline ../before

Each checkout runs *its own* copy of this file on its own sources, so a change of the API edits the cases
here and leaves those of the other checkout alone. Weights and attack tables must be equal bit for bit; upper
bounds may grow by a factor of 1 + 1e-12, and lower bounds may differ by as much. Exit code 1 reports a
difference.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

HERE = Path(__file__).resolve().parents[1]
RELATIVE = 1e-12

Numbers = dict[str, Any]
Case = Callable[[], Numbers]
"""Numbers by name: names that begin with "upper" or "lower" have a tolerance, all others none."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.baseline", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, nargs="?", help="the other checkout")
    parser.add_argument(
        "--measure", type=Path, help="write this checkout's numbers to a file, and compare nothing"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    options = parser.parse_args()
    if options.measure:
        options.measure.write_text(json.dumps(dict(_measured(options.only)), indent=1))
        return
    if options.before is None:
        parser.error("BEFORE must be given: the checkout to compare with, such as ../before.")
    with tempfile.TemporaryDirectory() as folder:
        before, after = (
            _measure_in(root, Path(folder) / name, options.only)
            for root, name in ((options.before.resolve(), "before.json"), (HERE, "after.json"))
        )
    changed = list(differences(before, after))
    print(f"{len(after)} cases, {sum(map(len, after.values()))} numbers, {len(changed)} differences.")
    print("\n".join(changed))
    sys.exit(bool(changed))


def _measure_in(root: Path, destination: Path, only: str) -> dict[str, Numbers]:
    """Run the cases of a checkout in a process of its own."""
    command = [sys.executable, "-m", "tools.baseline", "--measure", str(destination), "--only", only]
    subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root / "src")}, check=True)
    numbers: dict[str, Numbers] = json.loads(destination.read_text())
    return numbers


def differences(before: dict[str, Numbers], after: dict[str, Numbers]) -> Iterator[str]:
    if before.keys() != after.keys():
        yield f"cases: {sorted(before.keys() ^ after.keys())} are in one checkout only"
    for case in sorted(before.keys() & after.keys()):
        old, new = before[case], after[case]
        if old.keys() != new.keys():
            yield f"{case}: {sorted(old.keys() ^ new.keys())} are in one checkout only"
        for name in sorted(old.keys() & new.keys()):
            if not _agree(name, old[name], new[name]):
                yield f"{case}, {name}: {old[name]} before, {new[name]} now"


def _agree(name: str, old: Any, new: Any) -> bool:
    if old == new or old is None or new is None or not name.startswith(("upper", "lower")):
        return bool(old == new)
    slack = RELATIVE * abs(old)
    return bool(new <= old + slack and (name.startswith("upper") or new >= old - slack))


def _measured(only: str) -> Iterator[tuple[str, Numbers]]:
    import torch

    torch.set_num_threads(1)
    for name, case in {**_trainings(), **_certificates(), **_attacks()}.items():
        if only in name:
            print(name, file=sys.stderr, flush=True)
            torch.manual_seed(0)
            yield name, case()


# -------------------- trainings --------------------


def _trainings() -> dict[str, Case]:
    import certus

    def wrm_on_digits() -> Numbers:
        model = certus.models.build_model("mlp:32", certus.datasets.digits(), seed=0)
        fitted = certus.fit(
            model, certus.datasets.digits(), method=certus.WRM(gamma=1.0), epochs=2, progress=False
        )
        assert fitted.robustness is not None
        return {"weights": _digest(model), "rho_hat": fitted.robustness.rho_hat}

    def mnist_network() -> Numbers:
        import torch

        split = certus.datasets.digits().train[:800]
        images = torch.nn.functional.interpolate(split.inputs.reshape(-1, 1, 8, 8).float(), size=28)
        batches = [(images[i : i + 8], split.targets[i : i + 8]) for i in range(0, 800, 8)]
        torch.manual_seed(0)
        model = certus.models.mnist_cnn()
        certus.fit(model, batches, method=certus.WRM(gamma=0.3846), epochs=1, progress=False)
        return {"weights": _digest(model)}

    def certified_mlp() -> Numbers:
        import torch

        model = certus.models.build_model("certified-mlp:32", certus.datasets.digits(), seed=0)
        method = certus.WRM(gamma=2.0)
        fitted = certus.fit(
            model,
            certus.datasets.digits(),
            method=method,
            epochs=2,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            certified=certus.training.CertifiedTraining(),
            progress=False,
        )
        assert fitted.proof is not None
        return {"weights": _digest(model), "upper": fitted.proof.curvature}

    def table() -> Numbers:
        import pandas as pd

        data = certus.datasets.from_frame(pd.DataFrame(_table()), target="y", seed=0)
        model = certus.models.build_model("mlp:16", data, seed=0)
        certus.fit(model, data, method=certus.WRM(rho=0.01), epochs=3, progress=False)
        return {"weights": _digest(model)}

    def estimator() -> Numbers:
        from sklearn.datasets import load_wine

        inputs, labels = load_wine(return_X_y=True)
        model = certus.estimators.RobustClassifier(rho=0.05, epochs=10, random_state=0).fit(inputs, labels)
        return {"weights": _digest(model.module_), "rho_hat": model.rho_hat_}

    cases = (wrm_on_digits, mnist_network, certified_mlp, table, estimator)
    return {f"training {case.__name__}": case for case in cases}


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def _table() -> dict[str, Any]:
    import numpy as np

    chance = np.random.default_rng(0)
    town = chance.choice(["Basel", "Bern", "Chur"], 300)
    age = chance.normal(40, 12, 300).round(1)
    return {"town": town, "age": age, "y": np.where((town == "Bern") ^ (age > 45), "yes", "no")}


# -------------------- certificates --------------------


def _certificates() -> dict[str, Case]:
    import torch
    from torch import nn

    import certus
    from certus.costs import LabelCost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2, feature_mask

    torch.manual_seed(1)
    split = certus.datasets.digits().test[:24]
    vectors = certus.data.Samples(split.inputs.flatten(1).double(), split.targets)
    images = certus.data.Samples(split.inputs.reshape(-1, 1, 8, 8).double(), split.targets)
    weighted = certus.data.Samples(vectors.inputs, vectors.targets, torch.linspace(0.5, 1.5, 24))
    line = certus.data.Samples(vectors.inputs[:, :5], vectors.inputs.sum(1, keepdim=True))

    def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return build().double()

    def dense(activation: type[nn.Module], widths: tuple[int, ...] = (24,)) -> nn.Module:
        sizes, layers = (64, *widths), []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), activation()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], 10))

    def convolutional(activation: type[nn.Module]) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 3, stride=2, padding=1), activation(), nn.AvgPool2d(2), nn.Flatten()),
            nn.Linear(24, 10),
        )

    def residual(activation: type[nn.Module]) -> nn.Module:
        block = certus.models.Residual(nn.Sequential(nn.Linear(64, 64), activation()))
        return nn.Sequential(nn.Flatten(), block, nn.Linear(64, 10))

    linear, narrow = (lambda: nn.Sequential(nn.Linear(64, 10))), (lambda: nn.Sequential(nn.Linear(5, 1)))
    mask = Masked(certus.SquaredL2(), feature_mask(64, range(32)))
    slopes = torch.diag(torch.linspace(0.5, 2.0, 64, dtype=torch.float64))
    plain: list[tuple[str, nn.Module, certus.data.Samples, dict[str, Any]]] = []
    for name, activation in (("elu", nn.ELU), ("tanh", nn.Tanh), ("gelu", nn.GELU), ("relu", nn.ReLU)):
        plain.append((f"dense {name}", seeded(partial(dense, activation), 2), vectors, {}))
        plain.append((f"deep {name}", seeded(partial(dense, activation, (16, 16)), 3), vectors, {}))
        plain.append((f"convolutional {name}", seeded(partial(convolutional, activation), 4), images, {}))
        plain.append((f"residual {name}", seeded(partial(residual, activation), 5), vectors, {}))
    elu = seeded(lambda: dense(nn.ELU), 6)
    for name, options in (
        ("population", {"confidence": 0.95}),
        ("population hoeffding", {"confidence": 0.9, "inequality": "hoeffding"}),
        ("population bernstein", {"confidence": 0.9, "inequality": "bernstein"}),
        ("clipped", {"clip": 3.0}),
        ("box", {"domain": certus.Box(0.0, 1.0)}),
        ("masked", {"cost": mask}),
        ("label cost", {"label_cost": LabelCost(0.5, 10)}),
        ("weighted cost", {"cost": WeightedL2(torch.linspace(0.5, 2.0, 64))}),
        ("full cost", {"cost": Mahalanobis(slopes)}),
        ("sup", {"cost": SquaredSup()}),
        ("l1.5", {"cost": SquaredLp(1.5)}),
        ("class weights", {"class_weights": [1.0, 2.0] * 5}),
        ("accuracy", {"epsilon": [0.05, 0.1]}),
        ("no balls", {"local_radii": 0}),
        ("own gammas", {"gammas": [0.5, 1.0, 4.0]}),
        ("no attack", {"attack_steps": 0}),
    ):
        plain.append((name, elu, vectors, options))
    plain += [
        ("weighted samples", elu, weighted, {}),
        ("own labels", elu, certus.data.Samples(vectors.inputs, elu(vectors.inputs).argmax(1)), {}),
        ("linear", seeded(linear, 7), vectors, {}),
        ("linear regression", seeded(narrow, 8), line, {"criterion": certus.losses.SquaredError()}),
    ]

    def certified(model: nn.Module, data: certus.data.Samples, options: dict[str, Any]) -> Numbers:
        return _bracket(certus.certify(model, data, rho=[1e-3, 1e-2], progress=False, **options))

    cases: dict[str, Case] = {
        f"certificate {name}": partial(certified, model, data, options)
        for name, model, data, options in plain
    }

    def smoothed(**options: Any) -> Numbers:
        certificate = certus.certify_smoothed(elu, vectors, rho=0.01, sigma=0.25, progress=False, **options)
        return {"upper": certificate.bound(0.01), "lower": certificate.lower(0.01)}

    def read() -> Numbers:
        from sklearn.linear_model import LogisticRegression

        inputs, labels = vectors.inputs.numpy(), vectors.targets.numpy()
        fitted = LogisticRegression(max_iter=50, tol=1e-1).fit(inputs, labels)
        return _bracket(certus.certify(fitted, (inputs, labels), rho=[1e-3, 1e-2], progress=False))

    return cases | {
        "certificate smoothed": partial(smoothed, draws=20, votes=20),
        "certificate smoothed masked": partial(smoothed, draws=20, votes=20, cost=mask),
        "certificate smoothed loss": partial(smoothed, draws=20, votes=20, clip=4.0),
        "certificate estimator": read,
    }


def _bracket(certificate: Any) -> Numbers:
    """All sides of a certificate at its ρ."""
    numbers: Numbers = {}
    for rho in (1e-3, 1e-2):
        numbers[f"upper loss {rho}"] = certificate.bound(rho)
        numbers[f"lower loss {rho}"] = certificate.lower(rho)
        numbers[f"upper error {rho}"] = certificate.error_bound(rho)
        numbers[f"lower error {rho}"] = certificate.error_lower(rho)
        bracket = certificate.bracket(rho)
        numbers[f"upper population loss {rho}"] = bracket.population_loss
        numbers[f"upper population error {rho}"] = bracket.population_error
    numbers["evidence"] = certificate.evidence.value
    return numbers


# -------------------- attacks --------------------


def _attacks() -> dict[str, Case]:
    import torch

    import certus
    from certus.attacks import BIM, FGSM, PGD, evaluate, minimum_norm_attack

    model = certus.models.build_model("mlp:32", certus.datasets.digits(), seed=0)
    certus.fit(model, certus.datasets.digits(), epochs=2, progress=False)
    data, loss = certus.datasets.digits().test[:100], certus.ModelLoss(model)

    def attacked(attack: Any) -> Numbers:
        outcome = evaluate(loss.model, data, attack)
        assert outcome.errors is not None
        return {"loss": outcome.losses.tolist(), "wrong": outcome.errors.tolist()}

    infinity = float("inf")
    kinds: dict[str, Any] = {"fgm": FGSM, "ifgm": BIM, "pgm": PGD}  # names of cases in other checkouts
    methods: dict[str, Any] = {
        f"{name} {norm} {epsilon}": kinds[name](epsilon=epsilon, norm=norm)
        for name, norm, epsilon in (
            *(("fgm", 2, 0.2), ("fgm", infinity, 0.05), ("ifgm", 2, 0.2), ("ifgm", infinity, 0.05)),
            *(("pgm", 2, 0.2), ("pgm", infinity, 0.05), ("pgm", 2, 0.5)),
        )
    }
    methods |= {"wrm 1.0": certus.WRM(gamma=1.0), "wrm rho": certus.WRM(rho=0.05)}

    def nearest() -> Numbers:
        torch.manual_seed(0)
        distances = minimum_norm_attack(loss, data.inputs[:20], data.targets[:20], norm=2).distance
        return {"distances": distances.tolist()}

    cases: dict[str, Case] = {f"attack {name}": partial(attacked, method) for name, method in methods.items()}
    return cases | {"attack nearest": nearest}


if __name__ == "__main__":
    main()
