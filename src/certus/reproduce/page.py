"""The page of a reproduction, and the table of all: Markdown, generated from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from certus.reproduce.reproduction import Extent, Reproduction

WRITTEN_BY = "<!-- Written by `certus reproduce`; changes made here are lost. -->"


def page(of: Reproduction, content: dict[str, Any]) -> str:
    """``results/NAME/README.md``."""
    extent = Extent(content["extent"])
    command = f"certus reproduce {of.name}" + ("" if extent is Extent.QUICK else " --scale paper")
    fetched = "".join(f"certus data get {name}\n" for name in of.needs)
    lines = [
        WRITTEN_BY,
        f"# {of.title}",
        f"Of the paper: {', '.join(f'`{label}`' for label in of.shows)}. Scale: **{extent}**.",
    ]
    if extent in of.smaller:
        lines.append(of.smaller[extent])
    lines.append(f"```sh\n{fetched}{command}\n```")
    lines.append(markdown_table(["paper says", "we measure", "agrees"], _rows(content["statements"])))
    if of.text is not None:
        lines.append(of.text(content["measured"]))
    lines += [f"![{picture.caption}]({picture.name}.png)\n\n{picture.caption}" for picture in of.pictures]
    lines.append(_circumstances(content["circumstances"]))
    return "\n\n".join(lines) + "\n"


def table_of_all(contents: Sequence[dict[str, Any]]) -> str:
    """``results/README.md``: every statement of every reproduction."""
    rows = [
        [f"[{content['name']}]({content['name']}/README.md)", content["extent"], *row]
        for content in contents
        for row in _rows(content["statements"])
    ]
    head = ["result", "scale", "paper says", "we measure", "agrees"]
    words = (
        "What the paper says, and what was measured here: `certus reproduce` lists the results, "
        "`certus reproduce NAME` measures one again."
    )
    return "\n\n".join([WRITTEN_BY, "# The paper, reproduced", words, markdown_table(head, rows)]) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; bars inside cells are escaped.

    >>> print(markdown_table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [head, *rows]
    shown = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([shown[0], "|---" * len(head) + "|", *shown[1:]])


def _rows(statements: Sequence[dict[str, Any]]) -> list[list[str]]:
    words = {True: "yes", False: "no", None: "cannot be compared"}
    return [
        [
            f"{one['paper']} (`{one['label']}`)",
            f"{one['measured']} (*{one['evidence']}*)",
            words[one["agrees"]] + (f": {one['reason']}" if one["reason"] else ""),
        ]
        for one in statements
    ]


def _circumstances(known: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in known["versions"].items())
    threads = "1 thread" if known["threads"] == 1 else f"{known['threads']} threads"
    return f"Measured on {known['date']} with {versions}, on {threads} of {known['machine']['processor']}."
