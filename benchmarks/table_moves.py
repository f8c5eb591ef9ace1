"""Certificates of tables over rows beside the hull of their encodings: how much tighter both sides are.

A perceptron with 16 softplus units, trained for three epochs on 3,000 rows, certified on 40 test rows: of
employment (`certus data get employment`), and of the customers of examples/messy_table.py.

    python -m benchmarks.table_moves
"""

from __future__ import annotations

import runpy
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.data import Samples
from certus.datasets import SplitDataset, load

RHOS = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Args:
    rows: Annotated[int, "test rows that are certified"] = 40
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/table_moves.json")


def tables() -> dict[str, SplitDataset]:
    """The data sets, by name."""
    script = runpy.run_path("examples/messy_table.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "customers.csv"
        script["write"](path, script["customers"](1000, seed=0))
        return {"employment": load("employment"), "customers": load(f"csv:{path}", target="left")}


def brackets(data: SplitDataset, rows: int) -> list[dict[str, Any]]:
    """Both brackets, over the hull and over rows, at each ρ."""
    torch.manual_seed(0)
    assert data.weights is not None
    width, cost = data.train.inputs.shape[1], certus.costs.WeightedL2(data.weights)
    model = nn.Sequential(nn.Linear(width, 16), nn.Softplus(), nn.Linear(16, data.classes or 1))
    method = certus.WRM(gamma=2.0, cost=cost, domain=data.domain)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    certus.fit(model, data.train[:3000], method=method, epochs=3, optimizer=optimizer, progress=False)
    part, lines = data.test[:rows], []
    for over, samples in {"hull": Samples(part.inputs, part.targets), "rows": part}.items():
        certificate = certus.certify(
            model,
            samples,
            rho=RHOS,
            cost=cost,
            domain=data.domain,
            local_radii=1,
            gamma_rounds=0,
            attack_steps=0,
            progress=False,
        )
        for rho in RHOS:
            bracket = certificate.bracket(rho)
            lines.append(
                {
                    "over": over,
                    "rho": rho,
                    "loss": [bracket.loss_low, bracket.loss_high],
                    "error": [bracket.error_low, bracket.error_high],
                }
            )
    return lines


def main(args: Args) -> None:
    torch.set_num_threads(1)
    write_result(args, {name: brackets(data, args.rows) for name, data in tables().items()})


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
