"""``certus import``: make a run directory from a model that was trained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli.output import console, print_json
from certus.cli.train import show_run, show_sources
from certus.errors import require
from certus.runs.settings import Settings

if TYPE_CHECKING:
    from certus.bounds.trees.model import TreeModel


@cli.command("import")
@cli.argument("model_file", type=cli.PATH, required=False)
@cli.panel("Model")
@cli.option("--weights", type=cli.PATH, help="safetensors file with a network's state dict.")
@cli.option(
    "--model",
    metavar="NAME",
    help="Network of --weights, by name, or FILE.py:FACTORY for a file that is executed.",
)
@cli.allow_code_option
@cli.option(
    "--iterations",
    type=int,
    help="Number of boosting rounds of a tree model to use; 0 for all.",
    show_default="the best",
)
@cli.panel("Data")
@cli.option("--data", required=True, help="Data set of the model, as for certus train.")
@cli.option("--target", help="Column of a table to predict.", show_default="the last column")
@cli.option("--drop", default="", help="Columns of the table that are not columns of the tree model.")
@cli.option("--encoding", default="utf-8", help="Text encoding of a tree model's csv: file.")
@cli.option("--separator", default=",", help="Column separator of a tree model's csv: file, such as ;.")
@cli.option(
    "--feature-cost",
    default="",
    help="Cost factors of a tree model's columns, such as town=3,age=inf; inf keeps a column fixed.",
)
@cli.option(
    "--gap-cost",
    default="",
    help="Costs at which cells of a tree model's columns go missing or are filled, such as income=0.5.",
    show_default="gaps stay",
)
@cli.option(
    "--standardize/--no-standardize",
    default=True,
    help="Standardise a network's features as in its training.",
)
@cli.option("--seed", default=0, help="Seed of the split of a network's data.")
@cli.panel("Output")
@cli.option("--output", "-o", type=cli.PATH, required=True, help="Run directory to create.")
@cli.no_lock_option
@cli.json_option
def import_weights(
    model_file: Path | None,
    weights: Path | None,
    output: Path,
    allow_code: bool,
    iterations: int | None,
    drop: str,
    encoding: str,
    separator: str,
    feature_cost: str,
    gap_cost: str,
    no_lock: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a run directory from a model that was trained elsewhere.

    \b
    certus import model.txt --data csv:people.csv --target pays -o runs/boosted
    certus import model.joblib --allow-code --data csv:people.csv -o runs/forest
    certus import --model net.py:Net --weights net.safetensors --data mnist -o net

    MODEL_FILE is a tree model: a file of XGBoost (.json, .ubj), LightGBM (.txt) or CatBoost (.json), whose
    content decides, or with --allow-code a pickle or joblib file of one of these or of scikit-learn, alone or
    in a pipeline. Its table needs the columns of the model and the target. For a network, give --weights and
    --model instead.
    """
    require((model_file is None) != (weights is None), "MODEL_FILE", "be given, or --weights", model_file)
    if model_file is not None:
        reason = "for a tree model, whose table is taken as it is"
        cli.refuse_unused(dict.fromkeys(("model", "seed", "standardize"), reason))
        table = {"drop": drop, "encoding": encoding, "separator": separator}
        table |= {"feature_cost": feature_cost, "gap_cost": gap_cost}
        code = {"iterations": iterations, "allow_code": allow_code}
        _import_trees(model_file, output, options["data"], options["target"], as_json, table | code)
        return
    assert weights is not None
    require(options["model"] is not None, "--model", "be given with --weights", None)
    names = ("allow_code", "iterations", "drop", "encoding", "separator", "feature_cost", "gap_cost")
    cli.refuse_unused(dict.fromkeys(names, "for a network: it is for tree models"))
    _import_network(weights, output, no_lock, as_json, options)


def _import_trees(
    file: Path, output: Path, data: str, target: str | None, as_json: bool, options: dict[str, Any]
) -> None:
    from certus.runs.tree_run import import_trees

    run = import_trees(output, file, data=data, target=target, **options)
    reading: TreeModel = run.reading
    shape = {"trees": len(reading.ensemble.roots), "leaves": int((reading.ensemble.feature < 0).sum())}
    content = {"run": str(output), "library": reading.library, **shape, "rows": len(run.rows)}
    if as_json:
        print_json(content | {"right": run.right, "classes": _labels(reading)})
        return
    words = f"{reading.library}: {shape['trees']:,} trees with {shape['leaves']:,} leaves"
    console.print(f"{words}; {len(run.rows):,} rows of {data}.")
    if run.right is not None:
        console.print(f"The model predicts {run.right:.2%} of the rows as the table has them.")
    if run.right is not None and reading.model is None:
        console.print(f"Its file has the classes {', '.join(_labels(reading) or [])}, in this order.")
        if run.right < float(run.targets.bincount().max()) / len(run.targets):
            console.print(
                "One answer for all rows would be right more often: does the table name them otherwise?"
            )
    allowed = " --allow-code" if options["allow_code"] else ""
    console.print(f"Run directory: {output}. Next: certus certify {output}{allowed} --rho 0.01")


def _labels(reading: TreeModel) -> list[str] | None:
    return None if reading.classes is None else [str(label) for label in reading.classes.tolist()]


def _import_network(
    weights: Path, output: Path, no_lock: bool, as_json: bool, options: dict[str, Any]
) -> None:
    from certus.losses import ModelLoss, inferred_criterion
    from certus.models.networks import build_from, load_weights
    from certus.runs.directory import require_new_run, resolve_parents
    from certus.runs.factory import load_data
    from certus.runs.serialization import measure_result
    from certus.runs.train_run import start_run
    from certus.storage.tensors import load_tensors
    from certus.training import Fit

    data = options["data"]
    settings = Settings(**options, method="erm", folder=str(Path.cwd()) if ":" in data else "")
    cli.refuse_unused(cli.unused_by_source(data))
    output = resolve_parents(output)
    require_new_run(output)
    loaded = load_data(settings)
    cli.refuse_unused(cli.unused_by_data(loaded))
    built = build_from(settings.model, loaded, settings.seed)
    network = built.network
    load_weights(network, load_tensors(weights, require_digest=False)[0])
    loss = ModelLoss(network, inferred_criterion(loaded.train.targets))
    result = measure_result(Fit(network, [], None), loss, loaded)
    imported = (network.state_dict(), result)
    run = start_run(output, settings, loaded, imported=imported, sources=built.sources, locking=not no_lock)
    show_sources(built.sources)
    show_run(run, result, as_json)
