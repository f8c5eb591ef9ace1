"""``certus report``: an HTML page about one run or several."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from certus._progress import counting_bar
from certus.cli import options as cli
from certus.cli.output import console, messages, require_file, require_folder, same_place
from certus.errors import require, require_count
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.display.report.opening import Purpose


@cli.command("report")
@cli.argument("runs", type=cli.PATH, nargs=-1, required=True)
@cli.option("--output", "-o", type=cli.PATH, default="report.html", help="HTML page to write.")
@cli.option("--figures", type=cli.PATH, help="Folder for the figures of the page as PNG, SVG and PDF.")
@cli.option("--samples", default=200, help="Number of test samples to attack, drawn at random.")
@cli.option("--seed", default=0, help="Seed of the drawn samples and of random restarts.")
@cli.option(
    "--require",
    "requirements",
    multiple=True,
    help="Requirement to judge, such as 'error<=12%@rho=0.01'; may be repeated. The page then says pass or "
    "fail.",
)
@cli.option("--author", default="", help="Author, for the head of the page.")
@cli.option("--purpose", default="", help="Purpose of the model, for the head of the page.")
@cli.option("--date", default=None, help="Date for the head of the page.", show_default="today")
@cli.models_option
@cli.run_data_option
@cli.allow_code_option
def report(
    runs: tuple[Path, ...],
    output: Path,
    figures: Path | None,
    samples: int,
    seed: int,
    requirements: tuple[str, ...],
    author: str,
    purpose: str,
    date: str | None,
    models: tuple[str, ...],
    run_data: str | None,
    allow_code: bool,
) -> None:
    """Write an HTML report about runs, for offline use.

    \b
    certus report runs/digits
    certus report runs/digits-wrm runs/digits-erm -o compare.html
    certus report runs/digits --require 'error<=12%' --author 'A. Validator'
    certus report runs/digits --figures figures

    RUNS are complete run directories with the same test data, or the run of one tree model. Call `certus
    certify RUN` first: the page shows the certificate in RUN/certificate, and the checks of `certus monitor`
    in RUN/monitor.jsonl. It opens with a verdict for readers who do not write code; everything else is in an
    appendix.
    """
    from certus.cli.attack_support import open_comparable
    from certus.display.report.contents import attack_unit, evaluations, measure_run
    from certus.display.report.opening import Purpose
    from certus.display.report.page import draw_figures, render_report
    from certus.requirements import parsed
    from certus.runs.directory import owner_of
    from certus.runs.tree_run import is_tree_run

    require_count("--samples", samples, least=2)
    if requirements:
        parsed(requirements)  # which refuses what is no requirement before anything is measured
    today = datetime.date.today().isoformat() if date is None else date
    about = Purpose(today, author, purpose, requirements)
    require_file("--output", output)
    if figures is not None:
        require_folder("--figures", figures)
        require(not same_place(figures, output), "--figures", "be a path other than --output", figures)
        owner = owner_of(figures)
        taken = "" if owner is None else f"{figures}, which holds {owner.words}"
        require(not taken, "--figures", "be a separate folder", taken)
    trees = [run for run in runs if is_tree_run(run)]
    if trees:
        reason = "for the run of a tree model, which is not attacked"
        cli.refuse_unused(
            {"figures": reason, "samples": reason, "seed": reason, "model": reason, "run_data": reason}
        )
        require(
            len(runs) == 1, "RUNS", "be a single run if it is that of a tree model", ", ".join(map(str, runs))
        )
        page, remarks = _tree_page(runs[0], about, allow_code=allow_code)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, page.encode())
        console.print(f"Written: {output}. Open it in a browser; it needs no network.")
        for line in remarks:
            messages.print(f"{runs[0]}: {line}")
        return
    cli.refuse_unused({"allow_code": "for a network: it is for tree models"})
    opened = open_comparable(runs, models, run_data)
    total = sum(evaluations(trained, samples) for trained in opened)
    with counting_bar(messages, "measuring", total) as advance:
        reports = [measure_run(trained, attack_unit(opened[0]), samples, seed, advance) for trained in opened]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, render_report(reports, about).encode())
    console.print(f"Written: {output}. Open it in a browser; it needs no network.")
    if figures is not None:
        names = draw_figures(reports, figures)
        console.print(f"Figures in {figures}: {', '.join(names)}, each as .png, .svg and .pdf.")
    for each in reports:
        for line in each.remarks:
            messages.print(f"{each.name}: {line}")


def _tree_page(path: Path, about: Purpose, *, allow_code: bool) -> tuple[str, list[str]]:
    """Return the page about the run of a tree model, and remarks on what is missing."""
    from certus.certificates.certificate import Certificate
    from certus.cli.certified_run import CertifiedTrees, checked_certificate
    from certus.display.report.trees import render_tree_report
    from certus.errors import CertusError
    from certus.monitoring.history import RESULTS, stored_results
    from certus.runs.directory import CERTIFICATE_FOLDER

    certificate, remarks = None, []
    certified = CertifiedTrees(path, locking=False, allow_code=allow_code)
    file = path / CERTIFICATE_FOLDER / "certificate.json"
    if not file.exists():
        remarks.append(f"No certificate yet: certus certify {path} --rho 0.01 makes one.")
    else:
        try:
            certificate, _ = checked_certificate(certified, file)
        except CertusError as reason:
            remarks.append(f"The certificate is left out. {reason}")
    assert certificate is None or isinstance(certificate, Certificate)
    weights = certified.trained.settings.model_sha256
    checks = [each for each in stored_results(path / RESULTS) if each.get("weights") == weights]
    return render_tree_report(certified.trained, certificate, checks, about, remarks), remarks
