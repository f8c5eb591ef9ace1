"""Where reproductions work: networks that are trained once and shared, parts that are measured once and kept.

    FOLDER/networks/DATA-METHOD-DIGEST     a run directory, named by its settings
    FOLDER/parts/NAME/EXTENT/PART.json     what one part measured, with its settings, sealed

Both survive a kill: a training goes on from its checkpoint, and a part that is not there is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certus.data import load
from certus.reproduce.reproduction import Extent, Part, Reproduction
from certus.runs import RunLock
from certus.runs.building import load_data
from certus.runs.directory import RunDirectory
from certus.runs.execute import execute, start_run
from certus.runs.settings import Settings
from certus.runs.trained import TrainedRun, open_trained
from certus.storage.files import RunError, read_json
from certus.storage.sealed import check_seal, seal
from certus.storage.writing import write_json
from certus.training import Observer


@dataclass(frozen=True)
class Workshop:
    """A folder for networks and parts.

    Attributes:
        watch: makes an observer for each training, such as a progress bar.
    """

    folder: Path
    watch: Callable[[], list[Observer]] = list

    def network(self, settings: Settings) -> TrainedRun:
        """The network of these settings: found, finished, or trained."""
        path = self.folder / "networks" / f"{settings.data}-{settings.method}-{_digest(asdict(settings))}"
        if not (path / "run.json").exists():
            start_run(path, settings, load_data(settings))
        run = RunDirectory.open(path)
        if run.result is None:
            with RunLock(path):
                execute(run, observers=self.watch())
        return open_trained(run)

    def kept(self, of: Reproduction, extent: Extent, part: Part) -> Any | None:
        """What a part measured earlier under the same settings; None if it is still to be measured."""
        path = self._path(of, extent, part)
        if not path.exists():
            return None
        content = read_json(path)
        try:
            check_seal(content, path)
            known = content["settings"] == _plain(part.settings) and content["revision"] == of.revision
        except (KeyError, TypeError):
            raise RunError(f"{path} is corrupt: remove it, and the part is measured again.") from None
        return content["measured"] if known else None

    def keep(self, of: Reproduction, extent: Extent, part: Part, measured: Any) -> None:
        """Write down what a part measured."""
        path = self._path(of, extent, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"settings": _plain(part.settings), "revision": of.revision, "measured": measured}
        write_json(path, seal(content))

    def _path(self, of: Reproduction, extent: Extent, part: Part) -> Path:
        return self.folder / "parts" / of.name / extent / f"{part.name}.json"


def require_data(of: Reproduction) -> None:
    """Raise what ``load`` raises, which says how to get them, unless all data are there."""
    for name in of.needs:
        load(name)


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _plain(settings: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(dict(settings)))
