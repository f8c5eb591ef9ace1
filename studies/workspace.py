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
from certus.runs.loaded_run import TrainedRun, open_trained
from certus.runs.settings import Settings
from certus.runs.train_run import execute, start_run
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.write import check_seal, seal, write_atomically, write_json
from certus.training import Observer
from studies.dogs.resnet50 import resnet50_weights
from studies.study import Part, Scale, Study


def environment(*packages: str) -> dict[str, Any]:
    """In JSON types, for the file of a result.

    Args:
        packages: whose versions matter too, if they are installed.
    """
    return {
        "versions": {"certus": certus.__version__, **_versions(("torch", "numpy", *packages))},
        "threads": torch.get_num_threads(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def merge_environments(environments: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """The environment of several measurements in one: where they differ, each value once.

    Args:
        environments: None of what was not recorded, which a ``note`` tells.
    """
    recorded = [one for one in environments if one is not None]
    missing = len(environments) - len(recorded)
    note = {"note": f"Of {missing} of {len(environments)} parts it was not recorded when."} if missing else {}
    if not recorded:
        return note
    names = dict.fromkeys(name for one in recorded for name in one["versions"])
    dates = sorted(one["date"] for one in recorded)
    return {
        "versions": {
            name: _each([one["versions"][name] for one in recorded if name in one["versions"]])
            for name in names
        },
        "threads": _each([one["threads"] for one in recorded]),
        "machine": {
            name: _each([one["machine"][name] for one in recorded]) for name in recorded[0]["machine"]
        },
        "date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    } | note


def _each(values: list[Any]) -> Any:
    """The value itself if it is one for all; else all, in words."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else " and ".join(str(one) for one in different)


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

    def cached_number(self, about: Mapping[str, Any], compute: Callable[[], float]) -> float:
        """A number that was computed earlier for the same ``about``, or is now."""
        return float(self.cached(about, compute))

    def cached(self, about: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """The same for anything in JSON types."""
        path = self.folder / "numbers" / f"{_digest(_plain(about))}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, seal({"about": _plain(about), "number": compute()}))
        content = read_json(path)
        check_seal(content, path)
        return content["number"]

    def load(self, study: Study, scale: Scale, part: Part) -> Any | None:
        """What a part measured earlier under the same settings; None if it is still to be measured."""
        content = self._read(study, scale, part)
        return None if content is None else content["measured"]

    def environments_of(self, study: Study, scale: Scale) -> list[dict[str, Any] | None]:
        """When and with what each kept part was measured; None where it does not say."""
        contents = [self._read(study, scale, part) for part in study.parts(scale)]
        return [one.get("environment") for one in contents if one is not None]

    def store(self, study: Study, scale: Scale, part: Part, measured: Any) -> None:
        """Write down what a part measured, just now."""
        path, home = self._path(study, scale, part), _home(study, part)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "settings": _plain(part.settings),
            "revision": home.revision,
            "environment": environment(*home.needed_packages(scale)),
            "measured": measured,
        }
        write_json(path, seal(content))

    def _read(self, study: Study, scale: Scale, part: Part) -> dict[str, Any] | None:
        path = self._path(study, scale, part)
        if not path.exists():
            return None
        try:
            content = read_json(path)
            check_seal(content, path)
            revision = _home(study, part)[0].revision
            current = content["settings"] == _plain(part.settings) and content["revision"] == revision
        except (RunError, KeyError, TypeError):
            words = f"{path} is corrupt, or not of certus: remove it, and the part is measured again."
            raise DamageError(words) from None
        return content if current else None

    def _path(self, study: Study, scale: Scale, part: Part) -> Path:
        home, name = _home(study, part)
        return self.folder / "parts" / home.name / scale / f"{name}.json"


def _home(study: Study, part: Part) -> tuple[Study, str]:
    """Where a part of ``of`` is kept, and under which name."""
    return (study, part.name) if part.home is None else part.home


def require_inputs(study: Study, scale: Scale) -> None:
    """Raise what ``load`` raises, which says how to get them, unless all data are there; and
    ``UnsupportedError`` for a package that is not."""
    for package in study.needed_packages(scale):
        try:
            version(package)
        except PackageNotFoundError:
            how = f"pip install {_INSTALL.get(package, package)}"
            raise UnsupportedError(f"The result {study.name} needs {package}: {how}.") from None
    for name in study.needed_data(scale):
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


Facts = dict[str, Any]


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network in eval mode, and what was measured when it was trained, in JSON types."""

    model: nn.Module
    facts: Facts


def trained_network(
    workspace: Workspace,
    name: str,
    recipe: Mapping[str, Any],
    build: Callable[[], nn.Module],
    train: Callable[[nn.Module], Facts],
) -> TrainedNetwork:
    """The network of a recipe, found or trained.

    Args:
        recipe: all that it depends on, in JSON types.
        build: the network before training, which has the shapes of what is kept.
        train: trains it in place.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    path = workspace.folder / "own-networks" / f"{name}-{digest}.safetensors"
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
