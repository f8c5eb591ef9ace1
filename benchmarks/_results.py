"""Results of the scripts in benchmarks/: JSON files that say how they were measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from certus.storage.files import read_json
from certus.storage.write import write_json
from studies.workspace import environment

if TYPE_CHECKING:
    from dataclasses import Field

_PACKAGES = ("torchattacks", "foolbox", "adversarial-robustness-toolbox")
_NO_PART = ("output", "resume")  # of what is measured


class Arguments(Protocol):
    """A script's ``Args``: a frozen dataclass that has an output."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def output(self) -> Path: ...


def chosen_options(args: Arguments) -> dict[str, Any]:
    """The options that a result depends on, in JSON types."""
    return {name: _plain(value) for name, value in asdict(args).items() if name not in _NO_PART}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def how_measured(args: Arguments) -> dict[str, Any]:
    """Options, versions, threads, machine and date."""
    return {
        "options": chosen_options(args),
        **environment(*_PACKAGES),
    }


def write_result(args: Arguments, content: dict[str, Any]) -> None:
    """The whole result."""
    _write(args.output, {"measured": how_measured(args), **content})
    forget_unfinished(args)
    print(f"written to {args.output}")


def write_entry(args: Arguments, name: str, content: dict[str, Any]) -> None:
    """One entry of the result; the others stay as they are."""
    known = read_json(args.output) if args.output.exists() else {}
    _write(args.output, known | {name: {"measured": how_measured(args), **content}})
    print(f"entry {name} written to {args.output}")


def unfinished_path(args: Arguments) -> Path:
    """Where parts of a long measurement wait until all are there."""
    return args.output.with_suffix(".unfinished.json")


def unfinished_options(args: Arguments) -> Any:
    """What the unfinished measurement was called with; None if nobody knows."""
    file = unfinished_path(args)
    return read_json(file)["options"] if file.exists() else None


def read_unfinished(args: Arguments) -> dict[str, Any]:
    """The parts that an interrupted measurement has left: none unless it is resumed."""
    file = unfinished_path(args)
    return dict(read_json(file)["parts"]) if file.exists() else {}


def write_unfinished(args: Arguments, parts: dict[str, Any]) -> None:
    _write(unfinished_path(args), {"options": chosen_options(args), "parts": parts})


def forget_unfinished(args: Arguments) -> None:
    """All parts are in the result."""
    unfinished_path(args).unlink(missing_ok=True)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
