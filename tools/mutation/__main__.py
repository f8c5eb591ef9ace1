"""The command line: see ``tools.mutation``."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tools.mutation.mutants import KERNEL, Mutant, mutants
from tools.mutation.trials import RECORD, TESTS, Session, Test, read_record

RESULTS = Path(__file__).parent / "results.jsonl"
SURVIVORS = Path(__file__).parent / "survivors.md"


@dataclass
class Result:
    """One mutant.

    Attributes:
        id, digest: of the ``Mutant``.
        outcome: "killed", "survived", or "equivalent" if the compiled code is the same.
        by: the test that failed; "time" or a signal, if the fork was ended.
        kind: of a survivor, on the fixed problems that reach it: "loosens", "equal", "tightens", "differs",
            "raises" or "unreached".
        why: why it is harmless.
    """

    id: str
    digest: str
    outcome: str
    by: str = ""
    seconds: float = 0.0
    kind: str = ""
    why: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation", description="Mutants of the trusted kernel."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="watch which tests reach which lines")
    record.add_argument("--only", default="", help="tests whose name contains this; the others stay")
    record.add_argument("--new", action="store_true", help="those tests as well that have no record")
    for name, text in (
        ("run", "try every mutant that has no result"),
        ("again", "try survivors again that are neither loose nor explained"),
        ("sort", "compare survivors with the kernel on fixed problems"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--seconds", type=float, default=1e6, help="of tests, for one mutant at most")
        command.add_argument("--only", default="", help="mutants whose id matches this regular expression")
        command.add_argument("--sample", type=int, help="as many, drawn from all files alike")
        command.add_argument("--tests", nargs="+", default=TESTS, help="collect these files alone: quicker")
    explain = commands.add_parser("explain", help="record why a survivor is harmless")
    explain.add_argument("text", help="that the ids of one or more survivors contain")
    explain.add_argument("why")
    commands.add_parser("list", help="write the list of survivors")
    options = parser.parse_args()
    if options.command == "explain":
        results = read_results()
        chosen = [each for each in results.values() if options.text in each.id and each.outcome == "survived"]
        for result in chosen:
            result.why = options.why
        RESULTS.write_text("".join(map(_line, results.values())))
        print(f"{len(chosen)} explained")
    elif options.command == "list":
        write_list()
    elif options.command == "record":
        RECORD.parent.mkdir(exist_ok=True)
        session = Session(lambda session: _write_record(session, options.only, new=options.new))
        raise SystemExit(session.start())
    elif options.command == "sort":
        from tools.mutation.oracle import sort_kinds

        known = read_results()
        sort_kinds(_wanted(options, known), known, _append)
    else:
        raise SystemExit(Session(lambda session: _try(session, options)).start(options.tests))


def _write_record(session: Session, only: str, *, new: bool) -> None:
    stored = json.loads(RECORD.read_text()) if (only or new) and RECORD.exists() else {}
    kept = {name: test for name, test in stored.items() if name in session.items}
    again = [name for name in session.items if only in name] if only or not new else []
    names = again + [name for name in session.items if new and name not in kept and name not in again]
    whole = {name: test for name, test in kept.items() if name not in names} | session.record(names)
    RECORD.write_text(json.dumps(whole))
    print(f"{len(whole)} of {len(session.items)} tests pass")


def read_results() -> dict[str, Result]:
    """By id: the last line counts, and of a function that moved, those of its former file."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    results = {result.id: result for result in (Result(**json.loads(line)) for line in lines)}
    elsewhere = {(_within(result.id), result.digest): result for result in results.values()}
    for mutant in all_mutants():
        known, moved = results.get(mutant.id), elsewhere.get((_within(mutant.id), mutant.digest))
        if moved is not None and (known is None or known.digest != mutant.digest):
            results[mutant.id] = replace(moved, id=mutant.id)
    return results


def _within(name: str) -> str:
    """An id without its file."""
    return name.split(":", 1)[1]


def _line(result: Result) -> str:
    return json.dumps(asdict(result), ensure_ascii=False) + "\n"


def all_mutants() -> list[Mutant]:
    return [mutant for path in sorted(KERNEL.glob("*.py")) for mutant in mutants(path.name)]


def _wanted(options: argparse.Namespace, known: dict[str, Result]) -> list[Mutant]:
    every = all_mutants()
    if options.sample:
        every = random.Random(options.sample).sample(every, options.sample)
    some = []
    for mutant in every:
        result = known.get(mutant.id)
        fresh = result is not None and result.digest == mutant.digest
        left = fresh and result is not None and result.outcome == "survived"
        if options.command == "run":
            wanted = not fresh
        elif options.command == "sort":
            wanted = left
        else:
            wanted = left and result is not None and not result.why and result.kind != "loosens"
        if wanted and re.search(options.only, mutant.id):
            some.append(mutant)
    return some


def _try(session: Session, options: argparse.Namespace) -> None:
    known, record = read_results(), read_record()
    record = {name: test for name, test in record.items() if name in session.items}
    wanted = _wanted(options, known)
    reached: dict[str, list[str]] = {}
    for name, test in record.items():
        for line in test.lines:
            reached.setdefault(line, []).append(name)
    kills, total = Counter[tuple[str, str]](), 0.0
    for result in known.values():
        _count(kills, result.by, result.id.split(": ")[0])
    for number, mutant in enumerate(wanted, 1):
        if mutant.compiled() is None:
            result = Result(mutant.id, mutant.digest, "equivalent")
        else:
            tests = _in_order(mutant, record, reached, kills, options.seconds)
            if not tests and tuple(options.tests) != TESTS:
                continue  # other files may have tests
            by, seconds = session.attempt(mutant, tests) if tests else ("", 0.0)
            before = known.get(mutant.id)
            kind, why = (
                (before.kind, before.why)
                if before and not by and before.digest == mutant.digest
                else ("", "")
            )
            outcome = "killed" if by else "survived"
            result = Result(mutant.id, mutant.digest, outcome, by, round(seconds, 2), kind, why)
            _count(kills, by, mutant.id.split(": ")[0])
        total += result.seconds
        known[mutant.id] = result
        _append(result)
        print(
            f"{number}/{len(wanted)} {result.outcome} {result.seconds} s {mutant.id} | {result.by}",
            flush=True,
        )
    print(f"{total:.0f} s, {total / max(1, len(wanted)):.2f} s each")


def _append(result: Result) -> None:
    with RESULTS.open("a") as file:
        file.write(_line(result))


def _count(kills: Counter[tuple[str, str]], by: str, function: str) -> None:
    if by:
        kills[function, by] += 1
        kills[function.split(":")[0], by.split("[")[0]] += 1


def _in_order(
    mutant: Mutant,
    record: dict[str, Test],
    reached: dict[str, list[str]],
    kills: Counter[tuple[str, str]],
    budget: float,
) -> dict[str, Test]:
    """The tests that reach a mutant, within the budget together: those first that are quick, reach little
    else, or have killed others of the same function or file, and one case of each test before others."""
    lines = range(mutant.lines[0], mutant.lines[1] + 1)
    names = {name for line in lines for name in reached.get(f"{mutant.path}:{line}", ())}
    if not mutant.function:  # it runs while everything is imported
        names = {
            name for name, test in record.items() if any(p.startswith(f"{mutant.path}:") for p in test.lines)
        }
    function = mutant.id.split(": ")[0]

    def rank(name: str) -> float:
        weight = 1 + 8 * kills[function, name] + kills[mutant.path, name.split("[")[0]]
        return float((0.01 + record[name].seconds) * len(record[name].lines) ** 0.5 / weight)

    cases, cost = Counter[str](), dict[str, float]()
    for name in sorted(names, key=rank):
        cases[name.split("[")[0]] += 1
        cost[name] = rank(name) * cases[name.split("[")[0]]
    chosen: dict[str, Test] = {}
    spent = 0.0
    for name in sorted(cost, key=lambda name: cost[name]):
        if not chosen or spent + record[name].seconds <= budget:
            chosen[name] = record[name]
            spent += record[name].seconds
    return chosen


COLUMNS = {
    "killed": "killed",
    "equivalent": "same code",
    "loosens": "only loosen a bound",
    "equal": "same results",
    "explained": "explained",
    "open": "open",
    "waiting": "not run",
}
"""Of the list: the headings of the mutants of each file."""


def write_list() -> None:
    """Write the counts of all mutants, the explanations, and the survivors without one."""
    known, every = read_results(), all_mutants()
    results = [known[each.id] for each in every if each.id in known and known[each.id].digest == each.digest]
    tried = {result.id for result in results}
    counts = Counter((result.id.split(":")[0], _column(result)) for result in results)
    counts.update((mutant.path, "waiting") for mutant in every if mutant.id not in tried)
    paths = sorted({path for path, _ in counts})
    rows = [[path, *(counts[path, column] for column in COLUMNS)] for path in paths]
    rows.append(["all", *(sum(counts[path, column] for path in paths) for column in COLUMNS)])
    hours = sum(result.seconds for result in results) / 3600
    reasons: dict[str, list[Result]] = {}
    for result in results:
        if _column(result) == "explained":
            reasons.setdefault(result.why, []).append(result)
    RESULTS.write_text("".join(map(_line, results)))  # without those of code that is gone
    text = "# Survivors\n\nWritten by `python -m tools.mutation list`; see CONTRIBUTING.md.\n\n"
    text += f"{len(every)} mutants; those that were run took {hours:.2f} hours of processor time. "
    text += f"{len(reasons)} explanations.\n\n"
    text += f"| file | {' | '.join(COLUMNS.values())} |\n|---{'|---' * len(COLUMNS)}|\n"
    text += "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    text += "\n## Explained\n"
    for why, explained in reasons.items():
        text += f"\n{why}\n\n" + "".join(f"- `{result.id}`\n" for result in explained)
    for column, title in (("open", "Open"), ("equal", "Same results on all problems that reach them")):
        text += f"\n## {title}\n\n"
        text += "".join(f"- `{each.id}`\n" for each in results if _column(each) == column)
    SURVIVORS.write_text(text)


def _column(result: Result) -> str:
    if result.outcome != "survived":
        return result.outcome
    if result.why:
        return "explained"
    return result.kind if result.kind in ("loosens", "equal") else "open"


if __name__ == "__main__":
    main()
