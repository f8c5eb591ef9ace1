"""What accuracy hides, said at the end of a training."""

from __future__ import annotations

from typing import Any

from certus.cli.output import console, messages
from certus.display.text import make_table, number

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
        shown = make_table("true class", *labels, "recall")
        for label, counts, recall in zip(labels, told["confusion"], told["recall"], strict=True):
            shown.add_row(label, *map(str, counts), number(recall, 3))
        console.print(shown)
        console.print("Counts of test samples: a row for each true class, a column for each predicted class.")
    console.print(
        f"Balanced accuracy {number(told['balanced_accuracy'])}. Always predicting "
        f"{labels[told['majority']]} would be right on {told['majority_share']:.1%} of the test samples."
    )
    if told["never_predicted"]:
        never = ", ".join(labels[at] for at in told["never_predicted"][:_MOST])
        messages.print(
            f"Never predicted: {never}. With --class-weights balanced every class counts equally in training."
        )
