"""python -m tools.soak                       an hour, or SOAK_MINUTES, from where the last one stopped
python -m tools.soak --only lines --cases 50   so many cases of one kind, without looking at the clock
python -m tools.soak again KIND NUMBER         one case again, with all that it says
python -m tools.soak report                    what all of it came to
"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from pathlib import Path

import torch

from tools.soak.hour import Hour
from tools.soak.kinds import GOALS, PORTIONS, Kinds
from tools.soak.state import FOLDER, State
from tools.soak.tally import Case


def main() -> int:
    torch.set_num_threads(1)  # what is forked must have no other threads
    options = _options()
    options.state = options.state.absolute()
    state = State.load(options.state, options.seed)
    if options.what == "report":
        _report(state)
        return 0
    with ExitStack() as stack:
        kinds = Kinds(stack)
        if options.what == "again":
            return _again(kinds, state.seed, options.kind, options.number)
        print(f"seed {state.seed}; SOAK_SEED={state.seed} begins anew with it", flush=True)
        _soak(kinds, state, options)
    _report(state)
    return min(sum(len(kind.violations) for kind in state.kinds.values()), 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="?", default="run", choices=("run", "again", "report"))
    parser.add_argument("kind", nargs="?", choices=tuple(GOALS))
    parser.add_argument("number", nargs="?", type=int)
    seed = os.environ.get("SOAK_SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else None)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", "60")))
    parser.add_argument("--only", choices=tuple(GOALS), action="append")
    parser.add_argument("--state", type=Path, default=FOLDER, help="where the progress is kept")
    parser.add_argument("--cases", type=int, help="stop after so many more cases of each kind")
    return parser.parse_args()


def _soak(kinds: Kinds, state: State, options: argparse.Namespace) -> None:
    wanted = options.only or list(GOALS)
    last = {kind: state.of(kind).done + (options.cases or 10**12) for kind in wanted}
    hour = Hour(None if options.cases else options.minutes)
    while not hour.over:
        # The kind that is farthest from its goal; all arrive together.
        open_ = [kind for kind in wanted if state.of(kind).done < last[kind]]
        if not open_:
            break
        kind = min(open_, key=lambda name: state.of(name).done / GOALS[name])
        progress = state.of(kind)
        end = min(progress.done + PORTIONS[kind], last[kind])
        for case in kinds.tried(kind, state.seed, range(progress.done, end)):
            progress.add(case)
            _tell(kind, state.seed, case)
        state.minutes += hour.passed()
        state.save(options.state)
        print(f"{kind}: {progress.done}, violations {len(progress.violations)}", flush=True)


def _tell(kind: str, seed: int, case: Case) -> None:
    for what in case.violations:
        print(f"\nVIOLATION in {kind} {case.number}: {case.words}\n{what}", flush=True)
        print(f"again: python -m tools.soak again {kind} {case.number} --seed {seed}\n", flush=True)


def _again(kinds: Kinds, seed: int, kind: str, number: int) -> int:
    violations = 0
    for case in kinds.tried(kind, seed, [number]):
        print(f"{case.words}\n{dict(case.counts)}")
        _tell(kind, seed, case)
        violations += len(case.violations)
    return min(violations, 1)


def _report(state: State) -> None:
    print(f"\nseed {state.seed}, {state.minutes:.0f} minutes")
    for kind, progress in state.kinds.items():
        print(f"\n{kind}: {progress.done} cases, {len(progress.violations)} violations")
        for name, count in sorted(progress.counts.items()):
            print(f"  {count:>9} {name}")


if __name__ == "__main__":
    raise SystemExit(main())
