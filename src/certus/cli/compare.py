"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certus.cli import options as cli
from certus.errors import require


@cli.command("compare")
@cli.argument("runs", type=cli.PATH, nargs=-1, required=True)
@cli.options_of(cli.AttackOptions, types={"epsilon": tuple[cli.Radius, ...]})
@cli.models_option
@cli.run_data_option
@cli.json_option
def compare(
    runs: tuple[Path, ...], models: tuple[str, ...], run_data: str | None, as_json: bool, **options: Any
) -> None:
    """Attack several models on the same samples, side by side.

    \b
    certus compare runs/wrm runs/erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgd --norm 2 --epsilon from:runs/wrm
    certus compare runs/wrm runs/pgd --epsilon 0.05 --plot compare.png

    RUNS are two or more complete run directories with the same test data. Differences to the first run are
    paired, sample by sample, which detects much smaller differences than two separate intervals.
    """
    typed = cli.AttackOptions(**options)
    require(len(runs) >= 2, "runs", "be two or more", ", ".join(map(str, runs)))
    typed.check()
    from certus.cli.attack_support import attack_runs, open_comparable

    attack_runs(open_comparable(runs, models, run_data), typed, models, as_json=as_json)
