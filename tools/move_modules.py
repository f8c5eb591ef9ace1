"""Move and merge modules by the plan in ``moves.toml``, and rewrite whatever refers to them.

    python -m tools.move_modules attacks

Imports, dotted names in strings, and paths in documents follow. Merged modules keep their statements in the
order of the plan; equal statements are kept once, and other clashes of names stop the program before it
writes: give one of them another name under ``renames``. Run ``ruff check --fix``, ``ruff format``, mypy and
the tests afterwards.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools", "studies")
TEXTS = ("docs/*.md", "*.md", "pyproject.toml", "Makefile", "tools/*.sh")
NEW = ""  # marks names that are in place already, while dotted names are replaced


def main() -> None:
    plan = tomllib.loads((ROOT / "tools" / "moves.toml").read_text())
    parser = argparse.ArgumentParser(
        prog="python -m tools.move_modules", description="Move a part's modules."
    )
    parser.add_argument("part", choices=plan)
    _Move(plan[parser.parse_args().part]).carry_out()


class _Text:
    """A source text with replacements at positions of ``ast``, which counts lines from 1 and bytes."""

    def __init__(self, text: str) -> None:
        self.text, self._edits = text, list[tuple[int, int, str]]()
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def replace(self, span: tuple[int, int], words: str) -> None:
        self._edits.append((*span, words))

    def edited(self) -> str:
        text = self.text
        for start, end, words in sorted(self._edits, reverse=True):
            text = text[:start] + words + text[end:]
        return text


class _Move:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.modules: dict[str, list[str]] = plan["modules"]
        self.docstrings: dict[str, str] = plan.get("docstrings", {})
        self.packages = set(plan.get("packages", ()))
        self.renames = {tuple(name.rsplit(".", 1)): value for name, value in plan.get("renames", {}).items()}
        self.new = {old: new for new, olds in self.modules.items() for old in olds}
        self.files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
        self.known = {_module(path) for path in self.files}
        moved = {old: new for old, new in self.new.items() if old != new}
        self.dotted = moved
        self.places = {_file(old): _file(new) for old, new in moved.items()}
        bare = {old.split("/", 1)[1]: new.split("/", 1)[1] for old, new in self.places.items()}
        self.bare = {old: new for old, new in bare.items() if "/" in old}  # as documents name files

    def carry_out(self) -> None:
        texts = {path: self._rewritten(path) for path in self.files}
        merged = {new: self._merged(new, olds, texts) for new, olds in self.modules.items()}
        for path, text in texts.items():
            if _module(path) not in self.new:
                path.write_text(text)
        for new, olds in self.modules.items():
            target = SOURCE / _file(new)
            if new in self.packages:
                target = target.with_suffix("") / "__init__.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            first, *rest = (_path(old) for old in olds)
            if first != target:
                subprocess.run(["git", "mv", "-f", first, target], cwd=ROOT, check=True)
            for path in rest:
                subprocess.run(["git", "rm", "-qf", path], cwd=ROOT, check=True)
            target.write_text(merged[new])
        for pattern in TEXTS:
            for path in ROOT.glob(pattern):
                path.write_text(self._named(path.read_text()))

    def _rewritten(self, path: Path) -> str:
        module, text = _module(path), path.read_text()
        names = {name: new for (home, name), new in self.renames.items() if home == module}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                keys = ((node.module, alias.name) for alias in node.names if alias.asname is None)
                names |= {key[1]: self.renames[key] for key in keys if key in self.renames}
        text = self._imports(text, self.new.get(module, module))
        return self._named(_renamed(text, names) if names else text)

    def _imports(self, text: str, own: str) -> str:
        """All imports of moved modules, in the file that will be ``own``."""
        tree, edit = ast.parse(text), _Text(text)
        parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(alias.name in self.new for alias in node.names):
                words = [f"{NEW}{self.new[a.name]}" if a.name in self.new else a.name for a in node.names]
                edit.replace(edit.span(node), f"import {', '.join(words)}")
            if not isinstance(node, ast.ImportFrom):
                continue
            lines, changed = self._lines(node, own)
            start, end = edit.span(node)
            if not changed:
                continue
            if lines:
                edit.replace((start, end), ("\n" + " " * node.col_offset).join(lines))
                continue
            parent = parents[id(node)]
            if isinstance(parent, ast.Module) or len(getattr(parent, "body", ())) > 1:
                edit.replace((text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1), "")
            else:
                edit.replace((start, end), "pass")
        return edit.edited()

    def _lines(self, node: ast.ImportFrom, own: str) -> tuple[list[str], bool]:
        groups, changed = defaultdict[str, list[str]](list), False
        module = node.module or ""
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if full in self.known | self.new.keys() and alias.name not in _defined(module):
                home, _, name = self.new.get(full, full).rpartition(".")
                said = alias.asname or alias.name
                groups[home].append(name if name == said else f"{name} as {said}")
                changed |= self.new.get(full, full) != full
                continue
            home = self.new.get(module, module)
            name = self.renames.get((module, alias.name), alias.name)
            changed |= home != module or name != alias.name or home == own
            if home != own:
                groups[home].append(f"{name} as {alias.asname}" if alias.asname else name)
        return [f"from {NEW}{home} import {', '.join(names)}" for home, names in groups.items()], changed

    def _named(self, text: str) -> str:
        """Dotted names and paths in strings and documents, all at once."""
        tables = ((self.dotted, r"(?<![\w.])"), (self.places, r"(?<!\w)"), (self.bare, r"(?<![\w/])"))
        for table, before in tables:
            if not table:
                continue
            words = "|".join(map(re.escape, sorted(table, key=len, reverse=True)))
            text = re.sub(f"{before}({words})(?!\\w)", lambda match, t=table: t[match[1]], text)  # type: ignore[misc]
        return text.replace(NEW, "")

    def _merged(self, new: str, olds: list[str], texts: dict[Path, str]) -> str:
        if len(olds) == 1:
            return texts[_path(olds[0])]
        imports, typed, bodies = dict[str, None](), dict[str, None](), []
        words, statements = [self.docstrings[new]], dict[str, str]()
        for old in olds:
            text = texts[_path(old)]
            tree, edit = ast.parse(text), _Text(text)
            for node in tree.body:
                source = text[slice(*edit.span(node))]
                end = text.find("\n", edit.span(node)[1]) + 1
                cut = (edit.span(node)[0], end or len(text))
                if node is tree.body[0] and isinstance(node, ast.Expr):
                    words.append((ast.get_docstring(tree, clean=False) or "").strip())
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    imports[source] = None
                elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    typed |= {text[slice(*edit.span(inner))]: None for inner in node.body}
                elif any(statements.get(name) == ast.dump(node) for name in _bound(node)):
                    pass  # the same constant twice
                else:
                    clashing = [name for name in _bound(node) if name in statements]
                    if clashing:
                        raise SystemExit(f"{old} and another module of {new} define {', '.join(clashing)}")
                    statements |= dict.fromkeys(_bound(node), ast.dump(node))
                    continue
                edit.replace(cut, "")
            bodies.append(edit.edited().strip("\n"))
        future = [line for line in imports if "__future__" in line]
        others = [line for line in imports if line not in future]
        checked = ["if TYPE_CHECKING:\n    " + "\n    ".join(typed)] if typed else []
        docstring = '"""' + "\n\n".join(filter(None, words)) + '\n"""'
        return "\n\n".join([docstring, "\n".join(future), "\n".join(others), *checked, *bodies]) + "\n"


def _renamed(text: str, names: dict[str, str]) -> str:
    edit = _Text(text)
    for node in ast.walk(ast.parse(text)):
        start, end = edit.span(node) if hasattr(node, "lineno") else (0, 0)
        if isinstance(node, ast.Name) and node.id in names:
            edit.replace((start, end), names[node.id])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            match = re.compile(rf"\b{re.escape(node.name)}\b").search(text, start)
            assert match is not None
            edit.replace(match.span(), names[node.name])
        elif isinstance(node, ast.alias) and node.asname is None and node.name in names:
            edit.replace((start, end), names[node.name])
    return edit.edited()


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (leaf.id for each in targets for leaf in ast.walk(each) if isinstance(leaf, ast.Name))


def _defined(module: str) -> set[str]:
    """Names that a module defines or imports from elsewhere, so that no submodule is meant by them."""
    path = _path(module)
    if not module.startswith("certus") or not path.exists():
        return set()
    body = ast.parse(path.read_text()).body
    imported = {a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names}
    return imported | {name for node in body for name in _bound(node)}


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _path(module: str) -> Path:
    path = SOURCE / module.replace(".", "/")
    return (
        path / "__init__.py"
        if path.is_dir() and not path.with_suffix(".py").exists()
        else path.with_suffix(".py")
    )


if __name__ == "__main__":
    main()
