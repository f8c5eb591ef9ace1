"""Experiments measure, go on where they were interrupted when asked to, and draw what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from certus.errors import ArgumentError
from certus.mdp import TabularQLearning
from certus.storage.writing import write_json
from tests.pictures import line_of
from tests.scripts import Script, read


def test_resuming_goes_on_with_what_is_there(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "pendulum.json"
    sizes = ("--episodes", 1, "--trials", 1, "--bins", 3, 3, "--seeds", 0, 1, "--output", output)
    learn = TabularQLearning.fit
    learnt: list[TabularQLearning] = []

    def interrupted(self: TabularQLearning, *args: Any, **options: Any) -> Any:
        if len(learnt) == 3:
            raise KeyboardInterrupt
        learnt.append(self)
        return learn(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(TabularQLearning, "fit", interrupted)
        with pytest.raises(SystemExit, match="130"):
            script("experiments.pendulum", *sizes)
        assert not output.exists()
        learnt[:] = learnt[:2]  # one more may learn
        script("experiments.pendulum", *sizes, "--resume")
    found = read(output)
    assert list(found["runs"]) == ["nominal 0", "robust 0", "nominal 1", "robust 1"]
    assert found["summary"]["seeds"] == 2
    assert not output.with_suffix(".unfinished.json").exists()


def test_deep_cartpole(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "deep.json"
    sizes = ("--steps", 102, "--environments", 2, "--trials", 2, "--seeds", 0, 1)
    script("experiments.cartpole_deep", *sizes, "--output", output)
    assert set(read(output)["runs"]) == {"nominal 0", "robust 0", "nominal 1", "robust 1"}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cartpole", "--seeds 2 --episodes 4 --trials 2 --block 2"),
        (
            "cartpole_sweep",
            "--rounded 50 --covered 1e5 --rhos 0 1e-4 --seeds 2 --bracketed-seeds 2 --trials 2 --episodes 2",
        ),
        ("cartpole_schedules", "--rates 0.5 --gammas 50 --seeds 2 --trials 2 --share 1e-3"),
    ],
)
def test_a_plot_shows_the_result_as_it_was_measured(
    name: str,
    sizes: str,
    script: Script,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    drawn: list[Figure],
) -> None:
    output = tmp_path / "result.json"
    monkeypatch.setattr("certus.mdp.pictures.animate", lambda *args, **options: None)
    script(f"experiments.{name}", *sizes.split(), "--output", output)
    before = output.read_bytes()
    script(f"experiments.{name}", "--plot", "--output", output)
    assert output.read_bytes() == before
    (figure,) = drawn
    assert _drawn_numbers(name, figure) == pytest.approx(_measured_numbers(name, read(output)))
    with pytest.raises(SystemExit):
        script(f"experiments.{name}", "--plot", "--seeds", 3, "--output", output)
    assert "--seeds must be left out with --plot, which shows what" in capsys.readouterr().err


def _drawn_numbers(name: str, figure: Figure) -> list[float]:
    if name == "cartpole":
        return [value for agent in ("nominal", "robust") for value in line_of(figure.axes[0], agent)[1]]
    if name == "cartpole_sweep":
        lengths = [float(one.lines[0].get_ydata()[0]) for one in figure.axes[0].containers]  # type: ignore[attr-defined]
        return lengths + line_of(figure.axes[1], "nominal")[1] + line_of(figure.axes[1], "robust, γ = 50")[1]
    points = [one.lines[0].get_ydata() for axes in figure.axes for one in axes.containers]  # type: ignore[attr-defined]
    return sorted(float(value) for point in points for value in point)


def _measured_numbers(name: str, content: dict[str, Any]) -> list[float]:
    """What the picture must show, from the numbers of single seeds where the file has them."""
    if name == "cartpole":
        return [value for one in content["curves"].values() for value in np.mean(one, axis=0)]
    runs, systems = content["runs"], ("original", "short", "strong g")
    if name == "cartpole_sweep":
        lengths = [np.mean(runs["round 50"]["lengths"][system]) for system in systems]
        balls = [content["summary"][key]["worst-case value"].values() for key in ("nominal", "round 50")]
        return lengths + [one["mean"] for values in balls for one in values]
    return sorted(
        np.mean(one[system]) for one in runs.values() for system in ("original", "short", "strong g")
    )


def test_certified_accuracies_are_counts_and_never_of_a_part(
    script: Script, tmp_path: Path, drawn: list[Figure]
) -> None:
    runs, output = tmp_path / "runs", tmp_path / "page"
    given = ("--runs", runs, "--output", output, "--page")
    for name, share in (("near", 2500), ("far", 5000)):
        path = runs / name
        path.mkdir(parents=True)
        # A quarter, or half, certified to 1.58 exactly: not beyond it. The last 100 are misclassified.
        radius = [1.58] * share + [0.4] * (9900 - share) + [0.0] * 100
        found = [1.59] * share + [0.6] * (9900 - share) + [0.0] * 100
        settings = {"gamma": 1.5, "temperature": 0.3, "epsilon": 0.4, "epochs": 12}
        write_json(path / "run.json", {"settings": settings})
        write_json(
            path / "test.json", {"radius": radius[: 10_000 if name == "near" else 9500], "found": found}
        )
    with pytest.raises(ArgumentError, match="9500 images of far"):
        script("experiments.certified_accuracy", *given)
    write_json(runs / "far" / "test.json", {"radius": radius, "found": found})
    script("experiments.certified_accuracy", *given)
    text = (output / "README.md").read_text()
    assert "(γ = 1.5) | 99.00 | 99.00 – 99.00 | 25.00 – 99.00 | 25.00 – 25.00 | 0.00 – 25.00 |" in text
    assert "(γ = 1.5) | 99.00 | 99.00 – 99.00 | 50.00 – 99.00 | 50.00 – 50.00 | 0.00 – 50.00 |" in text
    assert read(output / "table.json")["networks"]["near"]["clean"] == 0.99
    (figure,) = drawn
    for label, part in (("certus, for small distances", 0.25), ("certus, for large distances", 0.5)):
        distances, values = line_of(figure.axes[0], label)
        assert {0.0, 1.58} <= set(distances)
        wanted = [0.99 if one < 0.4 else part if one < 1.58 else 0.0 for one in distances]
        assert values == pytest.approx(wanted)
