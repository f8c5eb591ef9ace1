"""Tables and sentences of certificates and trainings, for the command line, notebooks and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from certus._format import at_least, at_most, plain
from certus.bounds.smoothness import format_assumptions
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Certificate
from certus.certificates.class_rates import class_names
from certus.certificates.files import FLOAT32_STATEMENT, PREDICTED_LABELS_STATEMENT, ROWS_STATEMENT
from certus.display.text import Part, PlainTable, make_table, number
from certus.kernel.evidence import Evidence
from certus.monitoring import MonitorResult
from certus.requirements import GateResult
from certus.runs.sensitivity import FeatureSensitivity
from certus.smoothing.certificate import SmoothedCertificate
from certus.training._fit import Fit

# Certificates


def certificate_parts(certificate: Certificate) -> list[Part]:
    """Return every number of a certificate with its evidence, and sentences that explain them."""
    population, proof = certificate.population, certificate.no_proof is None
    accuracies, rates = accuracy_tables(certificate), rate_tables(certificate)
    tables = [*bracket_tables(certificate), *rates, *accuracies]
    sentences = [_bracket_words(certificate), *scope_sentences(certificate)]
    if certificate.labels == "predicted" and proof:
        sentences.append("Changed: the share of the samples whose prediction changes.")
    if not proof:
        sentences.append(f"No proof: {certificate.no_proof}")
    sentences.append(differing_words(certificate))
    if certificate.class_weights is not None:
        weights = ", ".join(f"{weight:.4g}" for weight in certificate.class_weights)
        sentences.append(
            f"Losses are weighted by class, in the order of the labels: {weights}. Error rates are not "
            "weighted."
        )
    if rates:
        sentences.append(_rate_words(certificate))
    if accuracies:
        sentences.append(_accuracy_words(certificate))
    if certificate.assumptions:
        sentences.append(format_assumptions(certificate.assumptions))
    if population is not None and proof:
        both = certificate.classes is not None
        sentences.append(
            f"Population: bounds for the distribution that the rows were drawn from. They hold with "
            f"confidence {population.confidence:g} for both sides and all rho at once"
            f"{', for loss and error rate together' if both else ''}, provided that the rows are independent "
            f"draws and that nothing was trained or tuned on them. The loss is clipped at "
            f"{population.clip:.4g} and bounded by {population.inequality}"
            f"{'; the error rate by DKW or betting' if both else ''}. Rows were taken in the order of seed "
            f"{population.upper.seed}.{repeat_words(population.repeats, certificate.samples)}"
        )
    if any("vacuous" in cell for table in tables for row in table.body for cell in row):
        sentences.append(vacuous_words(certificate))
    return [*tables, *filter(None, sentences)]


def scope_sentences(certificate: Certificate) -> list[str]:
    """Return sentences about the labels, moves and arithmetic of a certificate, unless they are usual."""
    scope = {
        PREDICTED_LABELS_STATEMENT: certificate.labels == "predicted",
        ROWS_STATEMENT: certificate.over_rows,
        FLOAT32_STATEMENT: certificate.deployment is not None,
    }
    return [sentence for sentence, applies in scope.items() if applies]


def bracket_tables(certificate: Certificate) -> list[PlainTable]:
    """Return tables of loss, error rate and the population, with a row for every ρ of the certificate."""
    labelled, proof = certificate.classes is not None, certificate.no_proof is None
    error = "error" if certificate.labels == "given" else "changed"
    limit, most = certificate.vacuous_loss, certificate.vacuous_error
    rules = (f"{certificate.evidence} by",) if proof else ()
    losses = make_table("rho", "distance", "loss at least", "at most", *rules)
    errors = make_table("rho", "distance", f"{error} at least", "at most")
    rates = (f"{error} at least", "at most") if labelled else ()
    population = make_table("rho", "population: loss at least", "at most", *rates)
    for bracket in certificate.curve():
        where = f"{bracket.rho:g}", f"{bracket.distance:.3g}"
        if proof:
            sides = _sides(bracket.loss_low, bracket.loss_high, limit)
            ranked = sorted(bracket.rules.items(), key=lambda item: -item[1])
            shares = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
            losses.add_row(*where, *sides, shares if bracket.rho else "the data themselves")
        else:
            losses.add_row(*where, at_least(bracket.loss_low), "no proof")
        low, high = _sides(bracket.error_low, bracket.error_high, most)
        errors.add_row(*where, low, high if certificate.proven_error_cost is not None else "no proof")
        rate = _sides(bracket.population_error_low, bracket.population_error, most) if labelled else ()
        sides = _sides(bracket.population_loss_low, bracket.population_loss, limit)
        population.add_row(where[0], *sides, *rate)
    with_population = proof and certificate.population is not None
    return [losses, *([errors] if labelled else []), *([population] if with_population else [])]


def vacuous_words(certificate: Certificate) -> str:
    """State what a vacuous bound is no better than."""
    answer, limit = certificate.constant_answer, certificate.vacuous_loss
    if answer is None:
        above = "" if limit is None else f"a loss bound above ln K = {limit:.4g}, or "
        return f"Vacuous: {above}an error bound of 1, says nothing: guessing does as well."
    return (
        f"Vacuous: no better than always saying {class_names(certificate)[answer.label]}, which errs on "
        f"{answer.error:.2%} of the samples, and than constant probabilities, of loss {answer.loss:.4g}."
    )


_LISTED = 5  # classes, each with a row of its own


def rate_tables(certificate: Certificate) -> list[PlainTable]:
    """Return tables of recalls, false-positive rates and balanced errors: of every class, or of many classes
    of the one with the least recall."""
    rates = certificate.rates
    if not rates or certificate.no_proof is not None:
        return []
    names = class_names(certificate)
    table = make_table("rho", "class", "recall at least", "at most", "false positives at least", "at most")
    balanced = make_table("rho", "balanced error at least", "at most")
    population = make_table("rho", "class", "population: recall at least", "false positives at most")
    for rho in certificate.rhos:
        own = {(rate.name, rate.label): rate for rate in rates if rate.rho == rho}
        recalls = [rate for rate in own.values() if rate.name == "recall"]
        if len(names) > _LISTED:
            recalls = [min(recalls, key=lambda rate: rate.low)]
        for recall in recalls:
            label = recall.label or 0
            fpr = own.get(("fpr", label))
            sides = ("–", "–") if fpr is None else _sides(fpr.low, fpr.high)
            table.add_row(f"{rho:g}", names[label], *_sides(recall.low, recall.high), *sides)
            if recall.population is not None:
                most = "–" if fpr is None or fpr.population is None else at_most(fpr.population)
                population.add_row(f"{rho:g}", names[label], at_least(recall.population), most)
        whole = own["balanced_error", None]
        balanced.add_row(f"{rho:g}", *_sides(whole.low, whole.high))
    return [table, balanced, *([population] if population.body else [])]


def _rate_words(certificate: Certificate) -> str:
    which = "" if (certificate.classes or 0) <= _LISTED else "The class with the least certified recall. "
    words = (
        f"{which}Recall: share of the rows of a class that are predicted as it, where all of rho may be "
        "spent on them. False positives: share of the other rows that are predicted as it. Balanced error: "
        "mean of the classes' error rates, with one budget rho over all."
    )
    if certificate.population is None:
        return words
    return (
        f"{words} Of the population: all classes together, with confidence "
        f"{certificate.population.confidence:g}, apart from the bounds of loss and error rate above."
    )


def accuracy_tables(certificate: Certificate) -> list[PlainTable]:
    """Return tables of the certified accuracy, with a row for every ε of the certificate."""
    if not certificate.epsilons or certificate.proven_error_cost is None:
        return []
    share = "accuracy" if certificate.labels == "given" else "unchanged"
    sample = make_table("epsilon", f"{share} at least", "at most")
    population = make_table(
        "epsilon", "population: at least", "at most", "this epsilon alone: at least", "at most"
    )
    for bracket in certificate.accuracies():
        epsilon = f"{bracket.epsilon:g}"
        sample.add_row(epsilon, *_sides(bracket.certified, bracket.attacked))
        joint = _sides(bracket.population_certified, bracket.population_attacked)
        population.add_row(epsilon, *joint, *_sides(bracket.fixed_certified, bracket.fixed_attacked))
    return [sample] if certificate.population is None else [sample, population]


def _accuracy_words(certificate: Certificate) -> str:
    cost = certificate.about.get("cost")
    norm = "the norm of the cost" if cost is None else f"the norm of the cost {cost['type']}"
    share = "Accuracy: the share of the samples that stay classified correctly"
    if certificate.labels == "predicted":
        share = "Unchanged: the share of the samples that keep their prediction"
    most = "for all others, a point within epsilon was found that is classified otherwise"
    words = (
        f"{share} wherever each of them moves by at most epsilon, in {norm}. At least: "
        f"{_evidence_words(certificate)}; at most: {_lower_words(certificate, most)}. "
        "Epsilon limits every single sample; the distance of "
        "the rows above is a root mean square over all samples, so that some may move farther."
    )
    if certificate.population is None:
        return words
    return (
        f"{words} Of the population, with confidence {certificate.population.confidence:g}: the wider bounds "
        "hold for all epsilon at once (DKW). Those for this epsilon alone hold only if you chose it before "
        "seeing the data (Clopper and Pearson)."
    )


def differing_words(certificate: Certificate) -> str:
    """Count the samples that the model predicts otherwise than the certified network; empty if none."""
    if not certificate.differing_predictions:
        return ""
    return (
        f"The model as handed in predicts {certificate.differing_predictions:,} of the "
        f"{certificate.samples:,} samples otherwise than the certified network: the same weights in float64. "
        "These bounds do not cover the rounding of its own precision; run it in float64, or scale its inputs."
    )


def error_name(labels: str) -> str:
    """Name the share of errors: with predicted labels, an error is a change."""
    return "error rate" if labels == "given" else "share of changed predictions"


NOT_CHECKED = "stated in the file, not re-checked"


def _evidence_words(certificate: Certificate | SmoothedCertificate) -> str:
    """The evidence of the upper sides."""
    bound = certificate if isinstance(certificate, SmoothedCertificate) else certificate.statement
    return NOT_CHECKED if bound.evidence is Evidence.STATED else str(bound.evidence)


def _lower_words(certificate: Certificate | SmoothedCertificate, words: str) -> str:
    """The evidence of the lower sides: the words, unless they were read from a file."""
    return NOT_CHECKED if certificate.lower_evidence is Evidence.STATED else words


def _bracket_words(certificate: Certificate) -> str:
    lower = _lower_words(certificate, "attained by a distribution that was found")
    sides = (
        f"At least: {lower}; at most: {_evidence_words(certificate)}. "
        f"{certificate.evidence.capitalize()} by: the rules that bound the loss, each with the share of the "
        "samples for which it is best."
    )
    if certificate.no_proof is not None:
        lower = _lower_words(certificate, "attained by points that attacks found, as the model computes them")
        sides = f"At least: {lower}."
        if certificate.proven_error_cost is not None:
            sides += f" At most: {_evidence_words(certificate)}."
    return (
        f"{_about_words(certificate)} A row bounds the worst case over all ways to move the samples by a "
        f"mean transport cost of at most rho. {sides}"
    )


def _about_words(certificate: Certificate | SmoothedCertificate) -> str:
    rows = certificate.about.get("rows")
    words = rows["words"] if rows else f"{certificate.samples:,} samples"
    search = certificate.about.get("search") or {}
    early = f" The search ended early ({search['unfinished']})." if search.get("unfinished") else ""
    if early and search.get("wide_rows"):
        early = f"{early[:-1]}: {search['wide_rows']:,} rows keep wide brackets."
    return (
        f"About {words}. Distance: the root of rho, a root mean square distance, in {units_of(certificate)}."
        f"{early}"
    )


def units_of(certificate: Certificate | SmoothedCertificate) -> str:
    """Return the units of distances; a certificate that was made in Python has no name for them."""
    return str(certificate.about.get("units") or "the norm of the cost")


def _sides(low: float | None, high: float | None, limit: float | None = None) -> tuple[str, str]:
    """Format a bracket, rounded outwards; an upper bound that reaches the limit is vacuous."""
    lower = "–" if low is None else at_least(low)
    if high is None:
        return lower, "–"
    return lower, at_most(high) + (" vacuous" if limit is not None and high >= limit else "")


# Certificates by randomised smoothing


def smoothed_parts(certificate: SmoothedCertificate) -> list[Part]:
    """Return a table for each quantity, and sentences; raises where sides contradict each other."""
    parts: list[Part] = []
    certificate.curve()
    for quantity in certificate.quantities:
        ideal = quantity.name == "ideal_vote"
        sides = ("ideal vote at most",) if ideal else (f"{quantity.name} at least", "at most")
        table = make_table("rho", "distance", *sides)
        for rho in certificate.rhos:
            low = None if ideal else quantity.low(rho)
            cells = _sides(low, quantity.high(rho), quantity.ceiling)
            table.add_row(f"{rho:g}", f"{rho**0.5:.3g}", *(cells[1:] if ideal else cells))
        parts.append(table)
    stated = certificate.lower_evidence is Evidence.STATED
    words = "stated in the file, not measured again" if stated else "measured with fresh noise"
    parts.append(
        f"{_about_words(certificate)} At least: attained by moves that were found, {words}; "
        f"at most: {_evidence_words(certificate)}. {certificate.statement}"
    )
    votes = ""
    if "vote" in {quantity.name for quantity in certificate.quantities}:
        votes = (
            f"Error: error rate of one noisy prediction. Vote: error rate of a majority vote of "
            f"{certificate.votes} noisy predictions that abstains at level {certificate.abstain}; "
            f"abstentions count as errors. Ideal vote: a vote of infinitely many. "
        )
    parts.append(
        f"{votes}{certificate.draws} noisy copies of each sample were drawn; {certificate.calibrated} other "
        "samples were used to choose the grid of gamma and the weights of the bound."
    )
    return parts


def gate_parts(result: GateResult) -> list[Part]:
    """Return a row for each requirement and ρ, and the verdict."""
    table = make_table("requirement", "rho", "value", "passes by", "evidence", "verdict")
    for each in result.outcomes:
        written = "{:.4f}".format if each.measured else at_most if each.side == "<=" else at_least
        value = "none" if each.value is None else written(each.value)
        margin = "–" if each.margin is None else f"{each.margin:+.4f}"
        where = "–" if each.rho is None else f"{each.rho:g}"
        verdict = "pass" if each.passed else "FAIL"
        table.add_row(each.requirement, where, value, margin, each.evidence, verdict)
    count, failed = len(result.outcomes), len(result.failed)
    words = f"All {count} hold." if count > 1 else "It holds."
    if failed:
        words = f"{failed} of {count} fail."
    abouts = [f"{each.requirement}: {each.about}." for each in result.outcomes if each.about]
    return [table, " ".join([words, *dict.fromkeys(abouts), *result.remarks])]


def sensitivity_table(moves: Sequence[FeatureSensitivity]) -> PlainTable:
    """Return a row for each feature that moves alone."""
    labelled = any(move.bracket.error_low is not None for move in moves)
    rates = ("error at least", "at most") if labelled else ()
    table = make_table("feature", *rates, "loss at least", "at most", "rho")
    for move in moves:
        bracket = move.bracket
        low, high = _sides(bracket.error_low, bracket.error_high)
        errors = (low, "no proof" if bracket.error_high is None else high) if labelled else ()
        low, high = _sides(bracket.loss_low, bracket.loss_high)
        losses = (low, high if math.isfinite(bracket.loss_high) else "no proof")
        table.add_row(move.feature.name, *errors, *losses, number(bracket.rho, 3))
    return table


# Training

_EPOCHS = 10
_COLUMNS = {
    "calibration_accuracy": "held-out accuracy",
    "calibration_loss": "held-out loss",
    "loss": "loss, moved",
    "accuracy": "accuracy, moved",
    "phi": "robust loss",
    "rho_running": "rho",
    "gamma": "gamma",
    "gradients": "gradients",
}

_STATUS = {
    "fixed": "",
    "reached": "That is the requested rho, within 5%.",
    "floor": "The requested rho was not reached: that would take a gamma below the smallest allowed one.",
    "missed": "The requested rho was not met: this is the nearest rho that was found.",
}
"""``RobustnessStatus`` in words."""


def epoch_parts(history: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return a table of the last ten epochs, and a legend of its columns; empty without epochs."""
    if not history:
        return []
    last = history[-1]
    names = [name for name in _COLUMNS if last[name] is not None]
    if "calibration_accuracy" in names:
        names.remove("calibration_loss")
    headers = dict(_COLUMNS)
    if last["rho_running"] is None:  # nothing is moved
        headers |= {"loss": "training loss", "accuracy": "training accuracy"}
    table = make_table("epoch", *(headers[name] for name in names), "seconds")
    for entry in history[-_EPOCHS:]:
        cells = [number(entry[name]) for name in names]
        table.add_row(str(entry["epoch"]), *cells, number(entry["seconds"], 3))
    parts: list[Part] = [table]
    if len(history) > _EPOCHS:
        parts.append(f"These are the last {_EPOCHS} of {len(history)} epochs.")
    if last["rho_running"] is not None:
        parts.append(
            "Held out: on unmoved calibration data. Moved: on training inputs where training moved them, "
            "which is harder."
        )
    if last["phi"] is not None:
        parts.append("Robust loss: the moved loss minus gamma times rho (phi), which training minimises.")
        parts.append("Rho: the mean transport cost of the moves, by default their mean squared distance.")
        if len({entry["gamma"] for entry in history}) > 1:
            parts.append("Gamma is adjusted to the requested rho during training, and once more at the end.")
    if last["gradients"] is not None:
        parts.append("Gradients: gradient evaluations per sample to find its move.")
    return parts


def reached_words(robustness: Mapping[str, Any]) -> str:
    """State ρ̂ at the final weights, its distance in the data's units if known, and whether ρ was reached."""
    words = (
        f"Robustness reached on the training data ({robustness['evidence']}): "
        f"rho_hat {robustness['rho_hat']:.4g} at gamma {robustness['gamma']:.4g}."
    )
    if robustness.get("interval") is not None:
        low, high = robustness["interval"]
        words += (
            f" It is the mean over {robustness['samples']:,} random samples; 95% interval for all of them: "
            f"{low:.4g} to {high:.4g}."
        )
    if "distance" in robustness:
        words += (
            " The worst case at this gamma moves the training inputs by a root mean square distance of "
            f"{robustness['distance']:.3g} ({robustness['units']})."
        )
    return f"{words} {_STATUS[robustness['status']]}".rstrip()


def fit_parts(fit: Fit) -> list[Part]:
    """Return the epochs, ρ̂ at the final weights, and the bound of certified training."""
    parts = epoch_parts([asdict(entry) for entry in fit.history])
    if fit.robustness is not None:
        names = ("gamma", "rho_hat", "samples", "interval")
        robustness = {name: getattr(fit.robustness, name) for name in names}
        parts.append(
            reached_words(robustness | {"evidence": "estimated", "status": fit.robustness.status.value})
        )
    if fit.proof is not None:
        parts.append(proof_words(fit.proof.as_json() | {"gamma": fit.proof.gamma}))
    return parts


def proof_words(proof: Mapping[str, Any]) -> str:
    """State the bound of certified training."""
    return (
        f"Certified training ({proof['evidence']}): at the final weights the curvature of the loss is at "
        f"most {at_most(proof['curvature'], 5)} at every input, so that the inner problem is concave for "
        f"every gamma above {at_most(proof['gamma'], 5)}."
    )


# Monitoring

_MOST_COLUMNS = 10


def monitor_parts(result: MonitorResult) -> list[Part]:
    """Return the verdict about new rows, the budget that each column spends, and what follows."""
    parts: list[Part] = list(monitor_sentences(result))
    columns = result.by_column[:_MOST_COLUMNS]
    if columns:
        table = make_table(
            "column", "budget spent", "cost at least", "by chance", "moved (rms)", "mean before", "after"
        )
        for each in columns:
            moved = "–" if each.moved is None else f"{each.moved:.3g} sd"
            if each.moved is not None and each.before is None:
                moved = f"{each.moved:.1%} of rows"
            means = tuple("–" if mean is None else plain(mean, 4) for mean in (each.before, each.after))
            cost = f"{each.cost:.3g}", f"{each.chance:.3g}"
            table.add_row(each.column, f"{each.share:.0%}", *cost, moved, *means)
        parts.insert(1, table)
    return parts


def monitor_sentences(result: MonitorResult) -> list[str]:
    """Return sentences about the position, the permutation test and the errors of a check."""
    where, rows = f" of {result.name}" if result.name else "", f"{result.rows:,} rows"
    if result.total > result.rows:
        rows = f"a random {result.rows:,} of {result.total:,} rows"
    verdicts = {
        "fine": "Fine: the rows{where} are covered by the certificate.",
        "alarm": "Alarm: the rows{where} have changed by more than chance, and are not covered.",
        "undecided": "Undecided, no alarm: the rows{where} are not covered, and differ by no more "
        "than chance.",
    }
    sentences = [
        f"{verdicts[result.verdict].format(where=where)} ({rows}, {result.reference_rows:,} certified.)"
    ]
    distance = result.distance
    if result.chosen is not None:
        verb = "counts" if len(result.chosen) == 1 else "count"
        sentences.append(f"Only {', '.join(result.chosen)} {verb}.")
    if result.assumptions:
        sentences.append(f"Assumed: {'; '.join(result.assumptions)}.")
    sides = f"at least {at_least(distance.low)} and at most {at_most(distance.high)} ({result.evidence})"
    roots = f"root mean square distance {distance.root_low:.3g} to {distance.root_high:.3g}"
    units = f", {result.units}" if result.units else ""
    sentences.append(
        f"Transport cost from the certified rows: {sides}: {roots}{units}. The certificate reaches rho = "
        f"{result.rho:g}. Position: {result.position}."
    )
    if result.outside_domain:
        sentences.append(
            f"{result.outside_domain} rows lie outside the domain of the certificate, which says "
            f"nothing about them."
        )
    elif result.position == "outside":
        sentences.append(
            "The rows are outside the ball that was certified. Its bound at rho says nothing about them; the "
            "error may be larger or smaller."
        )
    sentences.append(
        f"Chance alone gives a cost of {result.chance:.4g}, column by column. Relative to chance, the "
        f"columns moved {result.statistic:.3g} times as far; the alarm line is {result.line:.3g}, which "
        f"chance alone crosses in at most {result.level:.2g} of all checks: p = {result.p_value:.3g}."
    )
    sentences += _monitored_errors(result)
    return sentences


def _monitored_errors(result: MonitorResult) -> list[str]:
    """Return sentences about the errors of a check: proven, observed, and not observable."""
    what = "mean loss" if result.regression else "error rate"
    free = result.labelled or result.regression
    vacuous = not math.isfinite(result.bound) or (not result.regression and result.bound >= 1)
    given = "" if result.labelled else ", if each row has the label of the row that it is coupled with"
    if vacuous:
        sentences = [f"At this distance nothing is proven about the {what}: the bound is vacuous."]
    else:
        sentences = [
            f"At this distance the {what} is at most {at_most(result.bound)} ({result.evidence}){given}."
        ]
    realised = result.realised
    if realised is not None:
        met = (
            f"mean loss {realised.loss:.4g}" if realised.error is None else f"error rate {realised.error:.2%}"
        )
        part = f" of {result.rows:,} rows" if realised.rows < result.rows else " rows"
        sentences.append(f"Observed on {realised.rows:,} labelled{part}: {met} (attained).")
        if realised.relabelled:
            priced = (
                "" if result.label_price == math.inf else f", at the price of {result.label_price:g} each"
            )
            sentences.append(
                f"{at_most(100 * realised.relabelled, 2)}% of the rows are coupled with a row of "
                f"another label{priced}."
            )
    elif not free:
        sentences.append(
            "The rows have no labels. Without labels nothing shows whether the same inputs now have "
            "other labels."
        )
    return sentences


def chunk_table(results: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Return a table with a row for each stored check."""
    met = any(result["realised"] is not None for result in results)
    table = make_table(
        *("rows of", "verdict", "position", "cost at least", "at most", "times chance", "alarm line", "p"),
        *((f"observed {'loss' if results[0]['regression'] else 'error'}", "bound") if met else ("bound",)),
        words=("verdict", "position"),
    )
    for result in results:
        low, high = result["distance"]["low"], result["distance"]["high"]
        bound = result["bound"]
        vacuous = bound is None or (not result["regression"] and bound >= 1)
        cells = [result["name"], result["verdict"], result["position"], at_least(low, 3)]
        cells += [at_most(math.inf if high is None else high, 3), f"{result['statistic']:.3g}"]
        cells += [f"{result['line']:.3g}", f"{result['p_value']:.3g}"]
        if met:
            own = result["realised"]
            value = None if own is None else own["loss"] if own["error"] is None else own["error"]
            cells.append("–" if value is None else f"{value:.4f}")
        cells.append("vacuous" if vacuous else at_most(bound))
        table.add_row(*cells)
    return table
