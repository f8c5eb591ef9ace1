"""What a run was made from, and the commands that make it again."""

from __future__ import annotations

from certus.report.findings import Findings
from certus.report.recipes import certify_command, train_command
from certus.report.sections import commands, facts


def run_facts(found: Findings) -> str:
    """Data, seed and versions; the commands, as they were asked."""
    data, settings, about = found.trained.data, found.trained.settings, found.trained.run.settings
    kinds = {"to train": data.train, "to calibrate": data.calibration, "to test": data.test}
    parts = ", ".join(f"{len(part)} {name}" for name, part in kinds.items())
    entries: dict[str, object] = {
        "data": f"{data.name} ({parts})",
        "sha256 of the data": data.sha256 or "–",
        "distances in": data.units,
        "seed": settings.seed,
        "trained with": f"certus {about['certus_version']}, torch {about['torch_version']}",
    }
    imported = about.get("origin") == "imported"
    lines = [train_command(settings, found.name, imported=imported)]
    if found.certificate is not None:
        lines.append(certify_command(found.certificate.about["settings"], found.name))
    if found.stability is not None:
        lines.append(certify_command(found.stability.about["settings"], found.name))
    if found.certificate is not None:
        entries["certificate of"] = found.certificate.about["rows"]["words"]
        version = found.certificate.about["bounds_version"]
        entries["certified with"] = f"version {version} of the code that computes bounds"
    return facts(entries) + commands(lines)
