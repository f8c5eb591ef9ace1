"""``certus export``: write the network of a run as a torch.export file, for use without certus."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from certus.cli import options as cli
from certus.cli.output import console, require_file
from certus.errors import UnsupportedError
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from torch import Tensor, nn

_CLOSE = 1e-6


@cli.command("export")
@cli.option("--output", "-o", type=cli.PATH, default="model.pt2", help="File to write.")
@cli.takes_run
def export(run: cli.TypedRun, output: Path) -> None:
    """Write the network of a run as a torch.export file.

    \b
    certus export runs/digits -o digits.pt2

    RUN is a run directory. torch.export.load("digits.pt2").module() reads the file, which contains standard
    operations of torch only.
    """
    require_file("--output", output)
    trained = run.load()
    difference = export_model(trained.loss.model, trained.data.test.inputs[:256], output)
    console.print(
        f"Written: {output}. Its outputs differ from the run's own by at most {difference:.2g}, relative, on "
        f"{min(256, len(trained.data.test))} test samples."
    )


def export_model(model: nn.Module, inputs: Tensor, path: Path) -> float:
    """Write the network for any batch size; return the largest difference of the outputs of the reloaded file
    on these inputs, relative to 1 + their size; at most 10⁻⁶."""
    import torch
    from torch.export import Dim

    model = model.eval()
    try:
        program = torch.export.export(model, (inputs[:2],), dynamic_shapes=({0: Dim("batch")},))
    except Exception as reason:  # whatever torch makes of a model that it cannot follow
        line = " ".join(str(reason).split())[:200]
        raise UnsupportedError(f"`run` must have a network that torch can export; got {line}.") from reason
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    again = torch.export.load(buffer).module()
    with torch.no_grad():
        own, theirs = model(inputs), again(inputs)
    apart = float(((own - theirs).abs() / (1 + own.abs())).max())
    if not apart <= _CLOSE:
        raise UnsupportedError(
            f"The exported network differs from the run's own by {apart:.3g}; not written."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return apart
