"""A small made-up study: which parts are stored, measured again, and written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certus.display.canvas import new_figure
from certus.errors import ArgumentError
from certus.runs.settings import Settings
from certus.storage.files import CorruptFileError, RunError
from certus.storage.write import LockError, RunLock, add_checksum, write_json
from certus.training import Callback
from studies.page import WRITTEN_BY, markdown_table, page
from studies.registry import STUDIES, select_studies
from studies.runner import MEASURED, read_measured, run_study
from studies.study import Animation, Measured, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALLS: list[str] = []


def _square(workspace: Workspace, settings: Mapping[str, Any]) -> float:
    CALLS.append(f"{settings['number']}")
    if settings["number"] < 0:
        raise KeyboardInterrupt
    return float(settings["number"] ** 2)


def _draw(measured: Measured) -> Figure:
    figure = new_figure(2, 2)
    figure.subplots().plot(list(measured.values()))
    return figure


def _squares(*numbers: int) -> Study:
    return Study(
        name="squares",
        title="Squares",
        labels=("eqn:square",),
        minutes={Scale.QUICK: 1, Scale.FULL: 2},
        parts=lambda scale: [Part(f"part-{i}", {"number": n}, _square) for i, n in enumerate(numbers)],
        pictures=(Picture("plot", "Squares.", _draw),),
        verdicts=lambda measured: [
            Verdict(
                name="square",
                label="eqn:square",
                claim="9 | three times three",
                rule="9",
                outcome=outcome_of(measured["part-1"] == 9),
                ours={"square": Quantity(measured["part-1"], places=0)},
            )
        ],
        scope={Scale.QUICK: "Few of them."},
    )


@pytest.fixture(autouse=True)
def _forget() -> None:
    CALLS.clear()


def make(study: Study, folder: Path, scale: Scale = Scale.QUICK) -> list[str]:
    """Carry it out, and tell which parts were measured."""
    run_study(study, scale, Workspace(folder / "work"), folder / "results", lambda name, done, whole: None)
    found = CALLS.copy()
    CALLS.clear()
    return found


def test_parts_are_measured_once(tmp_path: Path) -> None:
    assert make(_squares(2, 3), tmp_path) == ["2", "3"]
    assert make(_squares(2, 3), tmp_path) == []
    assert make(_squares(2, 3, 4), tmp_path) == ["4"]


def test_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(_squares(2, -1, 4), tmp_path)
    CALLS.clear()
    assert make(_squares(2, 3, 4), tmp_path) == ["3", "4"]


def test_other_settings_or_a_new_revision_are_measured_again(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    assert make(_squares(2, 5), tmp_path) == ["5"]
    assert make(replace(_squares(2, 5), revision=2), tmp_path) == ["2", "5"]
    assert make(_squares(2, 5), tmp_path, Scale.FULL) == ["2", "5"], "kept by scale"


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    path = tmp_path / "work/parts/squares/quick/part-0.json"
    path.write_text(path.read_text().replace("4.0", "5.0"))
    with pytest.raises(
        CorruptFileError, match=r"part-0\.json is corrupt, .* remove it, and the part is measured"
    ):
        make(_squares(2, 3), tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"sha256": 1', "{}", "null"])
def test_unknown_parts_are_refused_with_the_remedy(content: str, tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    path = tmp_path / "work/parts/squares/quick/part-0.json"
    path.write_text(content)
    with pytest.raises(RunError, match=r"part-0\.json is corrupt, or not of certus: remove it, and the part"):
        make(_squares(2, 3), tmp_path)
    path.unlink()
    assert make(_squares(2, 3), tmp_path) == ["2"]


def test_a_page_says_when_its_parts_were_measured_not_when_it_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certus.__version__", "7.7.7")
    make(_squares(2, 3), tmp_path)
    monkeypatch.setattr("certus.__version__", "8.8.8")
    make(_squares(2, 3), tmp_path)
    text = (tmp_path / "results/squares/README.md").read_text()
    assert "certus 7.7.7," in text
    assert "8.8.8" not in text
    make(_squares(2, 3, 4), tmp_path)
    assert "certus 7.7.7 and 8.8.8," in (tmp_path / "results/squares/README.md").read_text()


def test_a_quick_look_never_replaces_the_papers_scale(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path, Scale.FULL)
    with pytest.raises(ArgumentError, match=r"must be another folder.*squares holds the full scale"):
        make(_squares(2, 3), tmp_path)
    assert make(_squares(2, 3), tmp_path, Scale.FULL) == []


def test_a_page_of_ones_own_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/README.md").write_text("# Mine\n")
    with pytest.raises(
        ArgumentError, match=r"`--output` must be a separate folder; .*README\.md is not of certus"
    ):
        make(_squares(2, 3), tmp_path)
    assert (tmp_path / "results/README.md").read_text() == "# Mine\n"
    (tmp_path / "results/README.md").unlink()
    os.mkfifo(tmp_path / "results/README.md")  # to read it would be to wait for ever
    with pytest.raises(ArgumentError, match=r"README\.md is not of certus"):
        make(_squares(2, 3), tmp_path)


@pytest.mark.parametrize("scale", Scale)
def test_unreadable_parts_are_reported_before_the_work(scale: Scale, tmp_path: Path) -> None:
    (tmp_path / "results/other").mkdir(parents=True)
    (tmp_path / "results/other" / MEASURED).write_text('{"no": "seal"}')
    (tmp_path / "results/other/README.md").write_text(WRITTEN_BY)
    with pytest.raises(RunError, match=r"other/measured\.json"):
        make(_squares(2, 3), tmp_path, scale)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_results_of_an_older_version_are_refused_with_the_remedy(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    path = tmp_path / "results/squares" / MEASURED
    content = read_measured(path)
    content["statements"] = content.pop("verdicts")
    write_json(path, add_checksum({name: value for name, value in content.items() if name != "sha256"}))
    with pytest.raises(
        CorruptFileError, match=r"older version: remove .*squares, and `python -m studies squares`"
    ):
        read_measured(path)


def test_a_folder_of_ones_own_beside_the_results_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "results/mine").mkdir(parents=True)
    (tmp_path / "results/mine" / MEASURED).write_text('{"my": "own"}')
    make(_squares(2, 3), tmp_path)
    assert "mine" not in (tmp_path / "results/README.md").read_text()
    assert (tmp_path / "results/mine" / MEASURED).read_text() == '{"my": "own"}'


def test_the_committed_results_can_be_added_to(tmp_path: Path) -> None:
    """What a clone holds in results/ must not stop the command there; and its table is not stale."""
    committed = Path(__file__).parents[2] / "results"
    shutil.copytree(committed, tmp_path / "results")
    before = (committed / "README.md").read_text()
    make(_squares(2, 3), tmp_path)
    after = (tmp_path / "results/README.md").read_text()
    rows = [line for line in after.splitlines() if line.startswith("|")]
    assert rows == [line for line in before.splitlines() if line.startswith("|")]
    assert "of 94, " in after  # the made-up study has no figure of the paper, but a statement


def test_written_files(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    folder = tmp_path / "results/squares"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", MEASURED, "plot.png", "plot.svg"]
    content = read_measured(folder / MEASURED)
    assert content["measured"] == {"part-0": 4.0, "part-1": 9.0}
    assert content["settings"] == {"part-0": {"number": 2}, "part-1": {"number": 3}}
    assert content["environment"]["versions"]["torch"]
    told, table = (folder / "README.md").read_text(), (tmp_path / "results/README.md").read_text()
    assert "9 \\| three times three (`eqn:square`)" in told
    assert "square: 9 (*estimated*) |" in told
    assert "| yes |\n" in told
    assert "Scale: **quick**" in told
    assert "Few of them." in told
    assert "python -m studies squares" in told
    assert "**Statements**: of 1, 1 yes," in table


def test_a_statement_that_does_not_hold_says_no(tmp_path: Path) -> None:
    make(_squares(2, 4), tmp_path, Scale.FULL)
    assert "square: 16 (*estimated*) | 9 | no |" in (tmp_path / "results/squares/README.md").read_text()
    assert "of 1, 0 yes, 0 partly, 1 no," in (tmp_path / "results/README.md").read_text()


def test_beyond_the_paper_there_are_questions(tmp_path: Path) -> None:
    make(_squares(2, 3), tmp_path)
    beyond = replace(_squares(2, 3), name="cubes", beyond=True, labels=())
    make(beyond, tmp_path)
    told, table = (tmp_path / "results" / name for name in ("cubes/README.md", "README.md"))
    assert "Beyond the paper. Scale: **quick**." in told.read_text()
    assert "| question | published | ours | *yes* needs | answer |\n" in told.read_text()
    of_paper, _, others = table.read_text().partition("\n## Beyond the paper\n")
    assert "of 1, 1 yes," in of_paper
    assert "| [cubes](cubes/README.md) | 1 yes | Squares |" in others


def test_films_stand_in_the_folder_and_on_the_page(tmp_path: Path) -> None:
    def write(measured: Measured, path: Path) -> None:
        path.write_text(f"{measured['part-1']}")

    make(replace(_squares(2, 3), animations=(Animation("roll", "It rolls.", write),)), tmp_path)
    assert (tmp_path / "results/squares/roll.gif").read_text() == "9.0"
    assert "![It rolls.](roll.gif)" in (tmp_path / "results/squares/README.md").read_text()


def test_a_note_stands_for_circumstances_that_were_not_recorded() -> None:
    study = _squares(2, 3)
    content = {"scale": "full", "verdicts": [], "measured": {}, "environment": {"note": "Long ago."}}
    assert page(study, content).endswith("\n\nLong ago.\n")


COMMITTED = Path(__file__).parents[2] / "results"


def rounded(content: Any) -> Any:
    """Twelve digits of every number: quantiles differ in the last ones between versions of SciPy."""
    if isinstance(content, dict):
        return {name: rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [rounded(value) for value in content]
    return float(f"{content:.12g}") if isinstance(content, float) else content


@pytest.mark.parametrize("name", sorted(path.parent.name for path in COMMITTED.glob(f"*/{MEASURED}")))
def test_a_committed_page_is_what_its_numbers_say(name: str) -> None:
    study, content = STUDIES[name], read_measured(COMMITTED / name / MEASURED)
    assert rounded([asdict(one) for one in study.verdicts(content["measured"])]) == rounded(
        content["verdicts"]
    )
    assert (COMMITTED / name / "README.md").read_text() == page(study, content)
    parts = {part.name: dict(part.settings) for part in study.parts(Scale(content["scale"]))}
    assert (content["settings"], content["revision"]) == (parts, study.revision)
    assert list(content["measured"]) == list(parts)
    drawn = [f"{picture.name}{suffix}" for picture in study.pictures for suffix in (".png", ".svg")]
    files = {MEASURED, "README.md", *drawn, *(f"{animation.name}.gif" for animation in study.animations)}
    weights = {path.name for path in (COMMITTED / name).glob("*.safetensors")}  # compared by digest elsewhere
    assert {path.name for path in (COMMITTED / name).iterdir() if path.is_file()} == files | weights


def test_all_studies_have_what_a_page_needs() -> None:
    for name in STUDIES:
        (study,) = select_studies(name)
        assert study.name == name
        for scale in Scale:
            parts = study.parts(scale)
            assert len({part.name for part in parts}) == len(parts) > 0
            assert study.minutes[scale] > 0
            assert study.training_at(scale).get("maximizer", "adaptive") == "adaptive", "which pages explain"
    assert {study.name for study in select_studies("all")} | {
        study.name for study in select_studies("beyond")
    } == set(STUDIES)
    assert not any(study.beyond for study in select_studies("all"))
    with pytest.raises(ArgumentError, match="`NAME` must be one of all, beyond, toy"):
        select_studies("nonsense")


def test_a_table_needs_no_rows() -> None:
    assert markdown_table(["a"], []) == "| a |\n|---|"


def test_a_network_that_another_process_trains_is_waited_for(tmp_path: Path) -> None:
    """Whoever waits finds it finished; whoever does not is refused."""
    settings = Settings(data="rings", model="toy", method="erm", epochs=1)
    first = Workspace(tmp_path).network(settings)
    kept = tmp_path / "networks" / first.run.path.name
    with RunLock(kept):  # nothing to train, nothing to wait for
        assert Workspace(tmp_path).network(settings).run.path == first.run.path
    (kept / "result.json").rename(tmp_path / "result.json")
    other = RunLock(kept)
    other.__enter__()
    with pytest.raises(LockError, match="is in use by another process"):
        Workspace(tmp_path).network(settings)

    def finished() -> None:
        (tmp_path / "result.json").rename(kept / "result.json")
        other.__exit__(None, None, None)

    def never() -> list[Callback]:
        raise AssertionError("it is trained again")

    assert Workspace(tmp_path, never, finished).network(settings).run.result == first.run.result
