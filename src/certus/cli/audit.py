"""``certus audit``: what the weights of a network prove, beside what is claimed of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli.output import console, messages, print_json
from certus.errors import FailedCheckError, require

if TYPE_CHECKING:
    from certus.certificates import Audit


class _Fraction(cli.ParamType):
    """A number, or a fraction such as 36/255."""

    name = "radius"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(Fraction(value)) if isinstance(value, str) else float(value)
        except (ValueError, ZeroDivisionError):
            self.fail("be a number, or a fraction such as 36/255", param, ctx)


@cli.command("audit")
@cli.argument("model", metavar="FILE.py:FACTORY")
@cli.option("--weights", type=cli.PATH, required=True, help="safetensors file with the network's state dict.")
@cli.option("--data", required=True, help="Data set that the claim is about, as for certus train.")
@cli.option(
    "--epsilon",
    type=_Fraction(),
    multiple=True,
    required=True,
    help="L2 radius of the accuracy, such as 36/255; may be repeated.",
)
@cli.option("--claimed-lipschitz", type=float, help="Claimed L2 Lipschitz constant of the vector of outputs.")
@cli.option("--claimed-accuracy", type=float, help="Claimed accuracy at the first EPSILON, such as 0.58.")
@cli.option("--target", help="Column of a table to predict.", show_default="the last column")
@cli.option("--samples", type=int, help="Number of test samples, drawn at random.", show_default="all")
@cli.option("--seed", default=0, help="Seed of the data split and of the samples.")
@cli.option("--output", "-o", type=cli.PATH, required=True, help="Folder to create for the files.")
@cli.json_option
def audit(
    model: str,
    weights: Path,
    data: str,
    epsilon: tuple[float, ...],
    claimed_lipschitz: float | None,
    claimed_accuracy: float | None,
    target: str | None,
    samples: int | None,
    seed: int,
    output: Path,
    as_json: bool,
) -> None:
    """Prove the constants and the accuracy that a network claims.

    \b
    certus audit net.py:Net --weights net.safetensors --data cifar10 \\
        --epsilon 36/255 --claimed-lipschitz 1 --claimed-accuracy 0.58 -o audit
    certus audit lipschitz:128x10 --weights runs/deep/model.safetensors \\
        --data cifar10 --epsilon 36/255 --epsilon 72/255 -o audit

    The network is built by FACTORY in FILE.py, which is executed, or by its name. Its weights are bounded as
    they are deployed: a parametrization is evaluated once, and the result is bounded. The folder gets
    audit.json, and the bounded network: graph.json and graph.safetensors. Exit code 1 if a claim is not
    proven.
    """
    from certus.certificates import audit as prove
    from certus.certificates._audit import write_audit
    from certus.data import Subset
    from certus.models.networks import build_from, load_weights
    from certus.runs.factory import load_data
    from certus.runs.settings import Settings
    from certus.storage.tensors import load_tensors

    require(not output.exists() or not any(output.iterdir()), "--output", "be a new folder", output)
    folder = str(Path.cwd()) if ":" in data else ""
    cli.refuse_unused(cli.unused_by_source(data))
    settings = Settings(data=data, model=model, method="erm", seed=seed, folder=folder, target=target)
    loaded = load_data(settings)
    require(loaded.classes is not None, "--data", "have labels", data)
    network = build_from(model, loaded, seed).network
    load_weights(network, load_tensors(weights, require_digest=False)[0])
    chosen = Subset.of(loaded.test, f"{data}@test", samples, seed=seed, stratify=True)
    with progress_bar(None, "auditing", messages) as report:
        result = prove(
            network,
            (chosen.data.inputs, chosen.data.targets),
            epsilon=epsilon,
            claimed_lipschitz=claimed_lipschitz,
            claimed_accuracy=claimed_accuracy,
            on_batch=report,
        )
    about = {"model": model, "weights": str(weights), "data": data, "rows": chosen.words, "seed": seed}
    write_audit(result, output, about)
    if as_json:
        print_json(result.as_json())
    else:
        _show(result, output)
    if result.shortfalls:
        raise FailedCheckError(f"not proven: {'; '.join(result.shortfalls)}.")


def _show(result: Audit, output: Path) -> None:
    from certus.display.text import make_table

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.2%}"

    console.print(
        f"{result.samples:,} samples, {result.accuracy:.2%} predicted correctly. Lipschitz constant of the "
        f"outputs: {result.lipschitz:.9g} proven"
        + ("." if result.claimed_lipschitz is None else f", {result.claimed_lipschitz:g} claimed.")
        + f" Of a margin: {result.margin:.9g} at most."
    )
    rows = [
        (
            f"{each.epsilon:.6g}",
            *map(share, (each.stated, each.claimed, each.proven, each.float32, each.error)),
        )
        for each in result.radii
    ]
    heads = ("epsilon", "claimed", "by the claimed constant", "proven", "for float32", "error at most")
    console.print(make_table(*heads, rows=rows))
    if result.not_covered:
        console.print(f"For float32 nothing is proven: {result.not_covered}.")
    if result.assumptions:
        console.print(f"Assumed: {'; '.join(result.assumptions)}.")
    console.print(f"Files: {output}")
