"""The JSON files of a run: ``run.json``, ``metrics.jsonl`` and ``result.json``; read without torch.

Entries are checked by ``msgspec`` (``convert``). Checksums reveal damage and edits by hand, not forgery:
whoever writes a new ``run.json`` can write new checksums.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from certus._epoch_metrics import EpochMetrics
from certus.storage.files import (
    MOST_JSON,
    CorruptFileError,
    Count,
    NonNegative,
    Positive,
    RunError,
    Sha256,
    Share,
    T,
    convert,
    parse_json,
    read_json,
    read_regular,
)
from certus.storage.write import is_temporary, verify_checksum

SETTINGS, SPLIT, MODEL, RESULT = "run.json", "split.safetensors", "model.safetensors", "result.json"
METRICS = "metrics.jsonl"


def find_folders(folder: Path) -> list[Path]:
    """Return the folder of every run in a folder and its subfolders, except those being created."""
    folders = (path.parent for path in sorted(folder.rglob(SETTINGS)))
    return [path for path in folders if not any(map(is_temporary, path.parts))]


RUN_VERSION = 5


class RunRecord(Struct, forbid_unknown_fields=True, frozen=True):
    """Content of ``run.json``."""

    schema_version: int
    certus_version: str
    torch_version: str
    origin: Literal["trained", "imported"]
    settings: dict[str, Any]  # those of ``Settings``; ``certus.runs.factory.read_settings`` checks them
    data_sha256: Sha256
    model_sha256: Sha256 | None  # of the user's model file
    model_imports: dict[str, Sha256] | None  # of the modules beside it
    model_uncovered: list[str] | None  # its imports without a checksum
    criterion: dict[str, Any]  # serialized, as cost and domain
    cost: dict[str, Any]
    domain: dict[str, Any]
    split_sha256: Sha256


def read_run(path: Path) -> RunRecord:
    """Read ``run.json``; check its version, its checksum and the types of its entries."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise CorruptFileError(f"{path} is corrupt: it does not describe a run.")
    version = content.get("schema_version")
    if version != RUN_VERSION or type(version) is not int:
        raise RunError(
            f"{path.parent} has schema version {version!r}, and this version of certus reads {RUN_VERSION} "
            "only: train again, or use the version of certus that wrote it."
        )
    return _converted(verify_checksum(content, path), RunRecord, path)


WEIGHTS = "weights_sha256"
"""Binds a result to the weights that it is about."""


class _Test(Struct, forbid_unknown_fields=True):
    loss: float
    accuracy: Share = 0.0


class _Robustness(Struct, forbid_unknown_fields=True):
    gamma: Positive
    rho_hat: NonNegative
    phi: float
    gradients: float
    status: str
    distance: float
    units: str
    evidence: str
    samples: int | None = None
    interval: tuple[NonNegative, NonNegative] | None = None


class _Proof(Struct):
    gamma: float
    curvature: float
    evidence: str
    assumptions: list[str] = []


class _RareClass(Struct, forbid_unknown_fields=True):
    label: Count
    share: Share
    average_precision: Share
    auc: Share


class _Classes(Struct, forbid_unknown_fields=True):
    names: list[str]
    confusion: list[list[Count]]
    recall: list[Share | None]
    balanced_accuracy: Share
    majority: Count
    majority_share: Share
    never_predicted: list[Count]
    rarest: _RareClass | None = None

    def __post_init__(self) -> None:
        count = len(self.confusion)
        square = all(len(row) == count for row in self.confusion)
        if not square or len(self.recall) != count or len(self.names) != count:
            raise ValueError("Expected as many rows, columns, names and recalls as classes")
        if max(self.majority, *self.never_predicted, 0) >= count:
            raise ValueError(f"Expected labels below {count}")


class _Regression(Struct, forbid_unknown_fields=True):
    rmse: float
    r2: float = 0.0


class _Result(Struct, forbid_unknown_fields=True):
    test: _Test
    robustness: _Robustness | None
    weights_sha256: Sha256
    proof: _Proof | UnsetType = UNSET
    classes: _Classes | UnsetType = UNSET
    regression: _Regression | UnsetType = UNSET
    smoothed: dict[str, Any] | UnsetType = UNSET
    inner_precision: Literal["float32", "float64", "bfloat16", "float16"] | UnsetType = UNSET


def read_result(path: Path) -> dict[str, Any]:
    """Read ``result.json``; check its checksum and the types of its entries."""
    content = verify_checksum(read_json(path), path)
    _converted(content, _Result, path)
    return content


def _converted(content: dict[str, Any], kind: type[T], path: Path) -> T:
    try:
        return convert(content, kind)
    except CorruptFileError as reason:
        raise CorruptFileError(f"{path} is corrupt: {reason}") from None


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Read ``metrics.jsonl`` of a run, checked: one entry per complete epoch."""
    path = folder / METRICS
    try:
        lines = read_regular(path, MOST_JSON).decode().splitlines()
        return [asdict(convert(parse_json(line), EpochMetrics)) for line in lines]
    except FileNotFoundError:
        return []
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except (ValueError, TypeError, RunError) as reason:
        problem = f"it does not hold the metrics of epochs: {' '.join(str(reason).split())[:200]}"
        raise CorruptFileError(f"{path} is corrupt: {problem}") from None
