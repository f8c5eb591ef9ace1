"""The command line: see ``tools.mutation``."""

from __future__ import annotations

import argparse
import subprocess
from collections import Counter

from tools.mutation.calls import Call, read_calls, record_calls, tests_of
from tools.mutation.forks import warm_up
from tools.mutation.listing import write_list
from tools.mutation.mutants import Mutant, draw
from tools.mutation.results import Result, append, read_results, rewrite
from tools.mutation.targets import CAMPAIGNS, ROOT, Campaign
from tools.mutation.trial import attempt


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation", description="Small mistakes, and whether the tests notice."
    )
    parser.add_argument("--campaign", choices=CAMPAIGNS, default="bounds", help="which code is mutated")
    commands = parser.add_subparsers(dest="command", required=True)
    calls = commands.add_parser("calls", help="watch which tests call which functions")
    calls.add_argument("tests", nargs="*", help="those that are new or changed; all unless given")
    for name, text in (("run", "try a sample"), ("again", "try its survivors again")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--count", type=int, default=400, help="mutants, at least")
        command.add_argument("--seed", type=int, default=14, help="of the sample")
        command.add_argument("--seconds", type=float, default=1e6, help="of CPU time to spend on one at most")
        command.add_argument("--only", default="", help="mutants whose id contains this")
        command.add_argument("--files", nargs="*", help="draw from these alone, such as kernel/graph.py")
    explain = commands.add_parser("explain", help="say why a survivor may survive")
    explain.add_argument("id")
    explain.add_argument("why")
    commands.add_parser("list", help="write the list of survivors")
    options = parser.parse_args()
    campaign = CAMPAIGNS[options.campaign]
    if options.command == "calls":
        campaign.calls.parent.mkdir(exist_ok=True)
        warm_up()
        tests = options.tests or campaign.tests
        raise SystemExit(record_calls(tests, campaign.skipped, campaign.calls, fresh=not options.tests))
    if options.command == "explain":
        results = read_results(campaign.results)
        results[options.id].why = options.why
        rewrite(results.values(), campaign.results)
    elif options.command == "list":
        write_list(read_results(campaign.results), campaign.survivors)
    else:
        warm_up()
        _try(campaign, options)


def _try(campaign: Campaign, options: argparse.Namespace) -> None:
    calls, known = read_calls(campaign.calls), read_results(campaign.results)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    targets = [target for target in campaign.targets if not options.files or target.path in options.files]
    drawn = draw(options.count, options.seed, targets, campaign.per_file)
    wanted = [mutant for mutant in drawn if options.only in mutant.id]
    if options.command == "again":
        wanted = [m for m in wanted if m.id in known and known[m.id].outcome == "survived"]
    else:
        wanted = [mutant for mutant in wanted if mutant.id not in known]
    for number, mutant in enumerate(wanted, 1):
        trial = attempt(mutant.path, mutant.code(), _in_order(mutant, calls, known, options.seconds))
        before, after = mutant.change()
        why = known[mutant.id].why if mutant.id in known else ""
        result = Result(
            mutant.id, commit, before, after, trial.outcome, trial.by, round(trial.seconds, 1), why
        )
        known[mutant.id] = result
        append(result, campaign.results)
        print(
            f"{number}/{len(wanted)} {trial.outcome} {trial.seconds:.0f} s {mutant.id} {trial.by}", flush=True
        )


def _in_order(
    mutant: Mutant, calls: dict[str, Call], known: dict[str, Result], budget: float
) -> dict[str, float]:
    """The tests of a mutant with their CPU times, which are within the budget together; those first that are
    quick or have killed others of the same file."""
    kills = Counter(result.by for result in known.values() if result.id.startswith(mutant.path + ":"))
    ordered = sorted(tests_of(mutant, calls), key=lambda test: calls[test].seconds / (1 + 4 * kills[test]))
    chosen: dict[str, float] = {}
    for test in ordered:
        if not chosen or sum(chosen.values()) + calls[test].seconds <= budget:
            chosen[test] = calls[test].seconds
    return chosen


if __name__ == "__main__":
    main()
