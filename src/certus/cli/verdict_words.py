"""What accuracy hides, said at the end of a training."""

from __future__ import annotations

from typing import Any

from certus.cli.output import console, messages
from certus.texts.plain_text import make_table, number

_MOST = 10  # classes that get a table


def show_verdict(result: dict[str, Any]) -> None:
    """Recall by class, balanced accuracy and the majority's share; RMSE and R² of a regression."""
    if "regression" in result:
        told = result["regression"]
        explained = f", R² {number(told['r2'])}" if "r2" in told else ""
        console.print(f"In units of the target: root mean squared error {number(told['rmse'])}{explained}.")
    if "classes" not in result:
        return
    told = result["classes"]
    labels = told["names"]
    if len(labels) <= _MOST:
        shown = make_table("true, said", *labels, "recall")
        for label, counts, recall in zip(labels, told["confusion"], told["recall"], strict=True):
            shown.add_row(label, *map(str, counts), number(recall, 3))
        console.print(shown)
        console.print("A row for each true class, a column for what the model says.")
    console.print(
        f"Balanced accuracy {number(told['balanced_accuracy'])}; always saying {labels[told['majority']]} "
        f"would be right in {told['majority_share']:.1%}."
    )
    if told["never_predicted"]:
        never = ", ".join(labels[at] for at in told["never_predicted"][:_MOST])
        messages.print(f"Never predicted: {never}. --class-weights balanced lets every class count alike.")
