"""``certus attack``: the loss and error of a model under attack, and the nearest error of each sample."""

from __future__ import annotations

from typing import Any

from certus.cli import options as cli


@cli.command("attack")
@cli.options_of(cli.AttackOptions, types={"epsilon": tuple[cli.Radius, ...]})
@cli.option(
    "--nearest",
    is_flag=True,
    panel="Attack",
    help="Search for the nearest error of each sample by a minimum-norm attack; with --attack wrm, for the "
    "largest gamma at which wrm makes an error.",
)
@cli.takes_run
@cli.json_option
def attack(run: cli.TypedRun, nearest: bool, as_json: bool, **options: Any) -> None:
    """Attack the test data of a run; results have 95% intervals.

    \b
    certus attack runs/digits
    certus attack runs/digits --epsilon 0.05
    certus attack runs/digits --norm 2 --epsilon 0.5 --epsilon 1 --plot sweep.png
    certus attack runs/digits --attack pgd --attack fgsm --epsilon 0.05
    certus attack runs/digits --norm 2 --epsilon from:runs/digits --no-clip
    certus attack runs/digits --attack wrm --gamma 4 --gamma 2 --gamma 1
    certus attack runs/digits --nearest --norm 2
    certus attack runs/digits --nearest --attack wrm

    RUN is a complete run directory. The result of an attack is attained: a lower bound on the worst case,
    never a certificate.
    """
    typed = cli.AttackOptions(**options)
    typed.check(nearest=nearest)
    from certus.cli.attack_support import attack_nearest, attack_runs

    trained = run.load()
    if nearest:
        attack_nearest(trained, typed, as_json=as_json)
    else:
        attack_runs([trained], typed, [] if run.model is None else [run.model], as_json=as_json)
