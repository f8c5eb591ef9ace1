"""Where reproductions work: networks that are trained once and shared, parts that are measured once and kept.

    FOLDER/networks/DATA-METHOD-DIGEST     a run directory, named by its settings
    FOLDER/numbers/DIGEST.json             what several parts need, or a piece of a long one; sealed
    FOLDER/parts/NAME/EXTENT/PART.json     what one part measured, with its settings, sealed; once for results
                                           that share it

All survive a kill: a training goes on from its checkpoint, and a part that is not there is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from certus.datasets import load
from certus.errors import UnsupportedError
from certus.runs import RunLock
from certus.runs.directory import RunDirectory
from certus.runs.factory import load_data
from certus.runs.loaded_run import TrainedRun, open_trained
from certus.runs.settings import Settings
from certus.runs.train_run import execute, start_run
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.write import check_seal, seal, write_json
from certus.training import Observer
from studies.circumstances import circumstances
from studies.reproduction import Extent, Part, Reproduction
from studies.resnet50_weights import resnet50_weights


@dataclass(frozen=True)
class Workshop:
    """A folder for networks and parts.

    Attributes:
        watch: makes observers for each training, such as a progress bar.
        waiting: called once before waiting for another process that trains a network; None refuses instead.
    """

    folder: Path
    watch: Callable[[], list[Observer]] = list
    waiting: Callable[[], None] | None = None

    def network(self, settings: Settings) -> TrainedRun:
        """The network of these settings: found, finished, or trained."""
        name = f"{Path(settings.data).stem}-{settings.method}-{_digest(_chosen(settings))}"
        path = self.folder / "networks" / name
        if not (path / "run.json").exists():
            start_run(path, settings, load_data(settings))
        if RunDirectory.open(path).result is None:
            with RunLock(path, waiting=self.waiting):
                run = RunDirectory.open(path)
                if run.result is None:  # who was waited for may have finished it
                    execute(run, observers=self.watch())
        return open_trained(RunDirectory.open(path))

    def number(self, about: Mapping[str, Any], compute: Callable[[], float]) -> float:
        """A number that was computed earlier for the same ``about``, or is now."""
        return float(self.piece(about, compute))

    def piece(self, about: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """The same for anything in JSON types."""
        path = self.folder / "numbers" / f"{_digest(_plain(about))}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, seal({"about": _plain(about), "number": compute()}))
        content = read_json(path)
        check_seal(content, path)
        return content["number"]

    def kept(self, of: Reproduction, extent: Extent, part: Part) -> Any | None:
        """What a part measured earlier under the same settings; None if it is still to be measured."""
        content = self._read(of, extent, part)
        return None if content is None else content["measured"]

    def circumstances_of(self, of: Reproduction, extent: Extent) -> list[dict[str, Any] | None]:
        """When and with what each kept part was measured; None where it does not say."""
        found = [self._read(of, extent, part) for part in of.parts(extent)]
        return [one.get("circumstances") for one in found if one is not None]

    def keep(self, of: Reproduction, extent: Extent, part: Part, measured: Any) -> None:
        """Write down what a part measured, just now."""
        path, home = self._path(of, extent, part), _home(of, part)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "settings": _plain(part.settings),
            "revision": home.revision,
            "circumstances": circumstances(*home.needed_packages(extent)),
            "measured": measured,
        }
        write_json(path, seal(content))

    def _read(self, of: Reproduction, extent: Extent, part: Part) -> dict[str, Any] | None:
        path = self._path(of, extent, part)
        if not path.exists():
            return None
        try:
            content = read_json(path)
            check_seal(content, path)
            revision = _home(of, part)[0].revision
            known = content["settings"] == _plain(part.settings) and content["revision"] == revision
        except (RunError, KeyError, TypeError):
            words = f"{path} is corrupt, or not of certus: remove it, and the part is measured again."
            raise DamageError(words) from None
        return content if known else None

    def _path(self, of: Reproduction, extent: Extent, part: Part) -> Path:
        home, name = _home(of, part)
        return self.folder / "parts" / home.name / extent / f"{name}.json"


def _home(of: Reproduction, part: Part) -> tuple[Reproduction, str]:
    """Where a part of ``of`` is kept, and under which name."""
    return (of, part.name) if part.home is None else part.home


def require_data(of: Reproduction, extent: Extent) -> None:
    """Raise what ``load`` raises, which says how to get them, unless all data are there; and
    ``UnsupportedError`` for a package that is not."""
    for package in of.needed_packages(extent):
        try:
            version(package)
        except PackageNotFoundError:
            how = f"pip install {_INSTALL.get(package, package)}"
            raise UnsupportedError(f"The result {of.name} needs {package}: {how}.") from None
    for name in of.needed_data(extent):
        _NEEDED.get(name, load)(name)


_INSTALL = {
    "gymnasium": "'certus[rl]'",
    "POT": "'certus[transport]'",
    "torchattacks": "--no-deps torchattacks",
}
"""What pip is told, where it is not the name."""


def _weights(name: str) -> None:
    resnet50_weights()


_NEEDED: dict[str, Callable[[str], object]] = {"resnet50": _weights}
"""What is no data set."""


def _chosen(settings: Settings) -> dict[str, Any]:
    """What differs from the defaults: a setting that is new leaves the names of others as they were."""
    defaults = {field.name: field.default for field in fields(settings)}
    return {name: value for name, value in asdict(settings).items() if value != defaults[name]}


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _plain(settings: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(dict(settings)))
