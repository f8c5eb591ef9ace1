"""``certus cartpole``: nominal and robust agents on the paper's seven systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, NoLock

StudyFolder = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for policies, results and the plot.")
]


def cartpole(
    gamma: Annotated[
        float | None,
        typer.Option(
            help="Penalty on moving a transition, for the robust agents; 50, or with --covering 1e5."
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(help="Training episodes of each agent.")] = 4000,
    seeds: Annotated[int, typer.Option(help="Agents of each kind.")] = 5,
    trials: Annotated[int, typer.Option(help="Episodes to try each agent for, on each system.")] = 1000,
    covering: Annotated[
        bool, typer.Option("--covering", help="Minimise over the cells, with the Q-term.")
    ] = False,
    output: StudyFolder = Path("runs/cartpole"),
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Balance a pole that is not the one the agent was trained on.

    \b
    certus cartpole
    certus cartpole --gamma 30 --seeds 20
    certus cartpole --covering

    Its mass, its length or gravity is another.
    """
    from certus.cli.cartpole_study import carry_out_study

    carry_out_study(
        gamma, episodes, seeds, trials, output, covering=covering, locking=not no_lock, as_json=as_json
    )
