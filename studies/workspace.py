"""The folder that studies work in: networks that are trained once, parts that are measured once.

    FOLDER/networks/DATA-METHOD-DIGEST               a run directory, named by its settings
    FOLDER/own-networks/NAME-DIGEST.safetensors      weights of networks without a name in ``certus train``
    FOLDER/numbers/DIGEST.json                       cached values that several parts need; with a checksum
    FOLDER/parts/NAME/SCALE/PART.json                the measurement of a part, with settings and checksum;
                                                     stored once for studies that share it

All survive a kill: a training resumes from its checkpoint, and a part that is missing is measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

import certus
from certus.datasets import load
from certus.errors import UnsupportedError
from certus.runs import RunLock
from certus.runs.directory import RunDirectory
from certus.runs.factory import load_data
from certus.runs.loaded_run import LoadedRun, open_run
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.storage.files import CorruptFileError, RunError, read_json
from certus.storage.write import add_checksum, verify_checksum, write_atomically, write_json
from certus.training import Callback
from studies.dogs.resnet50 import resnet50_weights
from studies.study import Part, Scale, Study


def environment(*packages: str) -> dict[str, Any]:
    """Return versions, threads, machine and date, in JSON types.

    Args:
        packages: further packages whose versions are recorded if they are installed.
    """
    return {
        "versions": {"certus": certus.__version__, **_versions(("torch", "numpy", *packages))},
        "threads": torch.get_num_threads(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def merge_environments(environments: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """Merge the environments of several measurements; where they differ, each value is listed once.

    Args:
        environments: None where it was not recorded, which becomes a ``note``.
    """
    recorded = [entry for entry in environments if entry is not None]
    missing = len(environments) - len(recorded)
    note = {"note": f"Of {missing} of {len(environments)} parts it was not recorded when."} if missing else {}
    if not recorded:
        return note
    names = dict.fromkeys(name for entry in recorded for name in entry["versions"])
    dates = sorted(entry["date"] for entry in recorded)
    return {
        "versions": {
            name: _each([entry["versions"][name] for entry in recorded if name in entry["versions"]])
            for name in names
        },
        "threads": _each([entry["threads"] for entry in recorded]),
        "machine": {
            name: _each([entry["machine"][name] for entry in recorded]) for name in recorded[0]["machine"]
        },
        "date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    } | note


def _each(values: list[Any]) -> Any:
    """Return the common value, or all different ones joined by "and"."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else " and ".join(str(entry) for entry in different)


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _processor() -> str:
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@dataclass(frozen=True)
class Workspace:
    """A folder for networks and parts.

    Attributes:
        watch: makes callbacks for each training, such as a progress bar.
        waiting: called once before waiting for another process that trains a network; None refuses instead.
    """

    folder: Path
    watch: Callable[[], list[Callback]] = list
    waiting: Callable[[], None] | None = None

    def network(self, settings: Settings) -> LoadedRun:
        """Load the network of these settings; train it, or finish its training, if necessary."""
        name = f"{Path(settings.data).stem}-{settings.method}-{digest_of(settings)}"
        path = self.folder / "networks" / name
        if not (path / "run.json").exists():
            start_run(path, settings, load_data(settings))
        if RunDirectory.open(path).result is None:
            with RunLock(path, waiting=self.waiting):
                run = RunDirectory.open(path)
                if run.result is None:  # who was waited for may have finished it
                    train_run(run, callbacks=self.watch())
        return open_run(RunDirectory.open(path))

    def cached_number(self, about: Mapping[str, Any], compute: Callable[[], float]) -> float:
        """Return the cached number for ``about``, or compute it."""
        return float(self.cached(about, compute))

    def cached(self, about: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the cached value for ``about``, in JSON types, or compute it."""
        path = self.folder / "numbers" / f"{_digest(_plain(about))}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, add_checksum({"about": _plain(about), "number": compute()}))
        content = read_json(path)
        verify_checksum(content, path)
        return content["number"]

    def load(self, study: Study, scale: Scale, part: Part) -> Any | None:
        """Return the stored measurement of a part with the same settings; None if there is none."""
        content = self._read(study, scale, part)
        return None if content is None else content["measured"]

    def environments_of(self, study: Study, scale: Scale) -> list[dict[str, Any] | None]:
        """Return the environment of each stored part; None where it was not recorded."""
        contents = [self._read(study, scale, part) for part in study.parts(scale)]
        return [content.get("environment") for content in contents if content is not None]

    def store(self, study: Study, scale: Scale, part: Part, measured: Any) -> None:
        """Store the measurement of a part."""
        path, home = self._path(study, scale, part), _home(study, part)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "settings": _plain(part.settings),
            "revision": home.revision,
            "environment": environment(*home.needed_packages(scale)),
            "measured": measured,
        }
        write_json(path, add_checksum(content))

    def _read(self, study: Study, scale: Scale, part: Part) -> dict[str, Any] | None:
        path = self._path(study, scale, part)
        if not path.exists():
            return None
        try:
            content = read_json(path)
            verify_checksum(content, path)
            revision = _home(study, part)[0].revision
            current = content["settings"] == _plain(part.settings) and content["revision"] == revision
        except (RunError, KeyError, TypeError):
            words = f"{path} is corrupt, or not of certus: remove it, and the part is measured again."
            raise CorruptFileError(words) from None
        return content if current else None

    def _path(self, study: Study, scale: Scale, part: Part) -> Path:
        home, name = _home(study, part)
        return self.folder / "parts" / home.name / scale / f"{name}.json"


def _home(study: Study, part: Part) -> tuple[Study, str]:
    """Return the study and the name that a part is stored under."""
    return (study, part.name) if part.home is None else part.home


def require_inputs(study: Study, scale: Scale) -> None:
    """Raise the error of ``load`` for missing data; ``UnsupportedError`` for a missing package."""
    for package in study.needed_packages(scale):
        try:
            version(package)
        except PackageNotFoundError:
            how = f"pip install {_INSTALL.get(package, package)}"
            raise UnsupportedError(f"The result {study.name} needs {package}: {how}.") from None
    for name in study.needed_data(scale):
        resnet50_weights() if name == "resnet50" else load(name)


_INSTALL = {
    "gymnasium": "'certus[rl]'",
    "POT": "'certus[transport]'",
    "torchattacks": "--no-deps torchattacks",
}
"""Arguments of pip, where they differ from the package's name."""


def digest_of(settings: Settings) -> str:
    """Return a digest of the settings that are not defaults: a new setting then renames no network."""
    defaults = {field.name: field.default for field in fields(settings)}
    return _digest({name: value for name, value in asdict(settings).items() if value != defaults[name]})


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _plain(settings: Any) -> Any:
    """Return settings as JSON returns them."""
    return json.loads(json.dumps(dict(settings)))


Facts = dict[str, Any]


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network in eval mode, and the facts recorded at its training, in JSON types."""

    model: nn.Module
    facts: Facts


def trained_network(
    workspace: Workspace,
    name: str,
    recipe: Mapping[str, Any],
    build: Callable[[], nn.Module],
    train: Callable[[nn.Module], Facts],
) -> TrainedNetwork:
    """Load or train the network of a recipe.

    Args:
        recipe: everything that the network depends on, in JSON types.
        build: returns the untrained network.
        train: trains it in place, and returns facts in JSON types.
    """
    path = workspace.folder / "own-networks" / f"{name}-{_digest(recipe)}.safetensors"
    model = build()
    if not path.exists():
        facts = train(model)
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = {key: value.contiguous() for key, value in model.state_dict().items()}
        write_atomically(path, save(weights, {"facts": json.dumps(facts)}))
    try:
        with safe_open(path, framework="pt") as stored:
            facts = json.loads((stored.metadata() or {})["facts"])
            model.load_state_dict({key: stored.get_tensor(key) for key in stored.keys()})  # noqa: SIM118
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise RunError(f"{path} is corrupt: remove it, and it is trained again ({problem}).") from None
    return TrainedNetwork(model.eval(), facts)
