"""The user's own ``FILE.py:FACTORY``: the code that runs is the code whose sha256 is recorded.

The file is read once; these bytes are hashed, compiled and executed. Python's own import would read
``__pycache__`` first, where a stale or planted file would run in place of the source.
Modules beside the file are imported in the same way, from source, and hashed too. Installed packages, modules
that the process has imported before, and data that the code reads are not covered.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from certus.errors import ArgumentError, require
from certus.storage.files import read_regular

MOST_SOURCE = 2**24
_OWN = "certus_own_"
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


@dataclass(frozen=True)
class Sources:
    """Source files that were executed to build a network."""

    files: Mapping[str, str]  # sha256 of the file and of modules beside it, by their path from its folder
    uncovered: tuple[str, ...] = ()  # modules beside it that are not Python source: not hashed


def is_own_file(spec: str) -> bool:
    """Whether a network is made by a user's code, ``FILE.py:FACTORY``."""
    return ".py:" in spec


def file_digest(spec: str) -> str | None:
    """sha256 of the file in ``FILE.py:FACTORY``; None for a network by name."""
    return hashlib.sha256(_read(Path(spec.rpartition(":")[0]))).hexdigest() if is_own_file(spec) else None


def own_place(error: BaseException) -> str | None:
    """Return where the user's code raised an error, such as ``net.py, line 7``; None if it did not."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        about = frame.f_globals
        if str(about.get("__name__")).startswith(_OWN) or isinstance(about.get("__loader__"), _Loader):
            place = f"{frame.f_code.co_filename}, line {line}"
    return place


class OwnCode(MetaPathFinder):
    """A user's file, read once, and finder of the modules beside it; only code of a ``expected`` sha256 is
    executed, by file name, or any if that is None."""

    def __init__(
        self, spec: str, expected: Mapping[str, str] | None = None, *, option: str = "model"
    ) -> None:
        file, _, self._factory = spec.rpartition(":")
        self._path, self._expected, self._option = Path(file), expected, option
        self._content = _read(self._path, option)
        self._folder = self._path.resolve().parent
        self._files: dict[str, str] = {}
        self._modules: set[str] = set()
        self._uncovered: list[str] = []
        self.accept(self._folder / self._path.name, self._content)

    @property
    def sources(self) -> Sources:
        """Source files that were executed so far."""
        return Sources(dict(self._files), tuple(self._uncovered))

    def factory(self) -> Callable[..., Any]:
        """Execute the file, inside ``imports``; return the function that the specification names."""
        module = ModuleType(f"{_OWN}{self._path.stem}")
        module.__file__ = str(self._path)
        sys.modules[module.__name__] = module  # dataclasses look there; gone at the end of ``imports``
        self._modules.add(module.__name__)
        exec(compile(self._content, str(self._path), "exec", dont_inherit=True), module.__dict__)
        factory: Callable[..., Any] = getattr(module, self._factory, None)  # type: ignore[assignment]
        require(callable(factory), self._option, f"name a function of {self._path}", repr(self._factory))
        return factory

    @contextmanager
    def imports(self) -> Iterator[None]:
        """Allow imports of modules beside the file, and forget them at the end: another file may have others
        of the same names."""
        before = set(sys.modules)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in set(sys.modules) - before - self._modules:
                origin = getattr(sys.modules[name], "__file__", None)
                if origin is not None and self._holds(Path(origin).resolve()):
                    self._uncovered.append(Path(origin).resolve().relative_to(self._folder).as_posix())
            for name in self._modules:
                sys.modules.pop(name, None)

    def _holds(self, path: Path) -> bool:
        """Whether a path lies beside the file, and is not installed."""
        return self._folder in path.parents and not any(place in path.parents for place in _INSTALLED)

    def accept(self, path: Path, content: bytes) -> None:
        """Record the sha256 of code before its execution; raise ``ArgumentError`` unless it is expected."""
        name, sha256 = path.relative_to(self._folder).as_posix(), hashlib.sha256(content).hexdigest()
        if self._expected is not None and self._expected.get(name) != sha256:
            rule = "be the file that the run was started with, and import the same modules beside it"
            got = f"{path}, which has another sha256 or was not imported then"
            raise ArgumentError(f"`model` must {rule}; got {got}.")
        self._files[name] = sha256

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module beside the file, or inside a package that is."""
        last = fullname.rpartition(".")[2]
        for folder in [self._folder] if path is None else [Path(entry).resolve() for entry in path]:
            package = folder / last
            for file, inside in ((package / "__init__.py", [str(package)]), (folder / f"{last}.py", None)):
                if self._holds(file) and file.is_file():
                    self._modules.add(fullname)
                    loader = _Loader(fullname, str(file), self)
                    return spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=inside
                    )
        return None


class _Loader(SourceFileLoader):
    """Loader from source only: ``__pycache__`` is neither read nor written."""

    def __init__(self, name: str, path: str, code: OwnCode) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        path = Path(self.path)
        content = _read(path)
        self._code.accept(path, content)
        return compile(content, self.path, "exec", dont_inherit=True)


def _read(path: Path, option: str = "model") -> bytes:
    try:
        return read_regular(path, MOST_SOURCE)
    except OSError as reason:
        message = f"name a file that can be read; got {path}: {reason.strerror}"
        raise ArgumentError(f"`{option}` must {message}.") from None
