"""Random command lines in a folder of files: each is refused with one line, or executed; no file is lost."""

from __future__ import annotations

import random
from typing import Any

from tools.soak.command import judge, run
from tools.soak.entries import ENTRIES, commands
from tools.soak.ground import Ground
from tools.soak.tally import Case
from tools.soak.values import draw_value

# Without these, a command works for minutes, as it should.
CAPS = {"train": ("--epochs",)}
TREASURES = ("run.json", "split.safetensors", "model.safetensors", "result.json", "checkpoint.safetensors")


def draw_line(rng: random.Random) -> list[str]:
    """A line that works, with mistakes; or one made of a command's own options."""
    name, command = rng.choice(sorted(commands().items()))
    if rng.random() < 0.6:
        words = list(rng.choice(ENTRIES[name].lines))
        for _ in range(rng.choices((0, 1, 2, 3), (1, 6, 3, 2))[0]):
            _edit(rng, words, command)
    else:
        words = _made(rng, name, command)
    for cap in CAPS.get(name, ()):
        if cap not in words:
            words += [cap, "2"]
    return words


def _edit(rng: random.Random, words: list[str], command: Any) -> None:
    parameter, place = rng.choice(command.params), rng.randrange(len(words))
    match rng.choices(("value", "add", "drop", "swap", "twice"), (5, 5, 2, 1, 1))[0]:
        case "value" if place > 0:
            words[place] = draw_value(
                rng, parameter if rng.random() < 0.2 else _before(words, place, command)
            )
        case "add":
            words += _option(rng, parameter)
        case "drop":
            words[place : place + 1] = [] if len(words) > 1 else [""]
        case "swap":
            other = rng.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        case "twice":
            words.insert(place, words[place])


def _before(words: list[str], place: int, command: Any) -> Any:
    """The parameter that the word belongs to, as far as one can see."""
    for parameter in command.params:
        if words[place - 1] in parameter.opts:
            return parameter
    return command.params[0]


def _option(rng: random.Random, parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [draw_value(rng, parameter)]
    flag = rng.choice([*parameter.opts, *parameter.secondary_opts])
    return [flag] if getattr(parameter, "is_flag", False) else [flag, draw_value(rng, parameter)]


def _made(rng: random.Random, name: str, command: Any) -> list[str]:
    words = name.split()
    for parameter in command.params:
        if parameter.required or rng.random() < 0.15:
            words += _option(rng, parameter)
    return words


def try_line(ground: Ground, seed: int, number: int) -> Case:
    """One line."""
    rng = random.Random(f"lines:{seed}:{number}")
    words = draw_line(rng)
    folder = ground.fresh()
    case = Case(number, repr(words))
    case.count("lines")
    ended = run(words, folder)
    judge(case, words, ended)
    altered, made = ground.changes()
    case.count("lines that wrote", int(bool(altered or made)))
    for path in sorted(altered):
        if not _may_change(path, words):
            case.violate(f"lost: {path} was altered, removed, or is another kind of file")
    return case


def _may_change(path: str, words: list[str]) -> bool:
    """Whether a line asks for it: an output is named, or a run that is incomplete goes on."""
    if path.endswith(".lock") or (path.startswith("half") and "half" in " ".join(words)):
        return True
    if path == "mnist.safetensors" and "get" in words:
        return True
    if path.rpartition("/")[2] in TREASURES or path.startswith(
        ("pipe", "link.csv", "dangling", "loop", "locked")
    ):
        return False
    outputs = {
        words[place + 1].removeprefix("./").rstrip("/")
        for place, word in enumerate(words[:-1])
        if word in ("-o", "--output", "--plot")
    }
    outputs |= {"data.csv"} if "link.csv" in outputs else set()
    outputs |= {f"{word.removeprefix('./').rstrip('/')}/certificate" for word in words}
    return any(path == output or path.startswith(f"{output}/") for output in outputs)
