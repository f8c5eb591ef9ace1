"""The rows of ``results/README.md``: the paper's figures and tables, then its theorems, in its order."""

from __future__ import annotations

from studies.paper_table import PaperRow

_TABLES_DIFFER = "3 epochs (authors' code: 25), λ‖w‖², one seed, 1,000 images for attacks."
_TABLES_WHY = "Unknown for errors; γ̄ grows with epochs and with norms of unstrided convolutions."
_NOT_KNOWN = "not reproduced; not known."
_SHORT = "10 epochs for WRM and FGM, 4 for IFGM and PGM; 1,000 images; one seed."
_SUP = "4 epochs for WRM and FGM, 2 for IFGM and PGM; 500 images; one seed."

PAPER_ROWS = (
    PaperRow(
        "fig:toy",
        "toy",
        ("radius", "symmetry", "ReLU", "concave", "threshold"),
        "24 seeds; Adam, batches of 128 and a step that falls to 0 are our choice.",
        "Asymmetry {symmetry:ERM} (ERM), {symmetry:FGM} (FGM), {symmetry:WRM} (WRM); WRM smallest on "
        "{symmetry:of them as claimed} of {symmetry:seeds} seeds.",
        "No bound proves concavity at γ = 2, so the threshold stays open.",
        "boundaries.png",
    ),
    PaperRow(
        "fig:loss-bound (a)",
        "toy",
        ("bound", "tightness"),
        "Both curves by an ascent that converges, beside a proven bracket.",
        "Below the worst case at {bound:below at} of {bound:values of ρ} ρ, by up to {bound:by up to}; "
        "{tightness:difference} at ρ̂.",
        "The curve is about training data, and ε_n is left out.",
        "certificate.png",
    ),
    PaperRow(
        "fig:loss-bound (b)",
        "mnist",
        ("certificate",),
        "10 epochs; training images for the certificate, test images for the worst case.",
        "Above the worst case at {certificate:above at} of {certificate:values of ρ} ρ.",
        "φ is {certificate:mean of φ, training data} on training and {certificate:test data} on test images: "
        "the network overfits.",
        "certificate.png",
    ),
    PaperRow(
        "fig:mnist",
        "mnist",
        ("accuracy", "concavity", "PGM, L2", "PGM, the sup-norm"),
        _SHORT,
        "Of {PGM, L2:decided} decided pairs in L2 {PGM, L2:as claimed} as claimed; in the sup-norm "
        "{PGM, the sup-norm:as claimed} of {PGM, the sup-norm:decided}.",
        "Small strengths are undecided: 1,000 images.",
        "pgm.png",
    ),
    PaperRow(
        "fig:mnist2",
        "mnist",
        ("stability", "an 8"),
        "Another 8 than the paper's; 10 epochs.",
        "ρ̂_test of ERM is up to {stability:ERM's over WRM's, largest} times WRM's.",
        "Each network has errors of its own, so digits need not agree.",
        "stability.png",
    ),
    PaperRow(
        "fig:mnist-fgm",
        "mnist",
        ("FGM, L2", "FGM, the sup-norm", "IFGM, L2", "IFGM, the sup-norm"),
        _SHORT,
        "Decided pairs as claimed: {FGM, L2:as claimed} of {FGM, L2:decided} and {IFGM, L2:as claimed} of "
        "{IFGM, L2:decided} in L2.",
        "Small strengths are undecided: 1,000 images.",
        "fgm.png",
    ),
    PaperRow(
        "fig:mnist3",
        "mnist",
        ("digits",),
        "Ten other digits.",
        "Mean length {digits:mean L2 length, ERM} (ERM), {digits:mean L2 length, WRM} (WRM).",
        "Likeness is for the reader to judge.",
        "digits.png",
    ),
    PaperRow(
        "fig:mnist4",
        "mnist-gamma",
        ("stability", "smooth", "gains"),
        "ρ̂ of test images, not of training images.",
        "Gains {gains:first half}, then {gains:second half} points for each unit of C₂/γ.",
        "The text says nothing of (a) that could be judged.",
        "gammas.png",
    ),
    PaperRow(
        "fig:mnist_bound_big",
        "mnist-large",
        ("concavity", "certificate"),
        "4 epochs; the points at which concavity is checked are not given.",
        "Above the worst case at {certificate:above at} of {certificate:values of ρ} ρ; not concave at "
        "{concavity:not concave at}, halfway {concavity:halfway}.",
        "The claim of 10% holds halfway along the ascent only.",
        "certificate.png",
    ),
    PaperRow(
        "fig:mnist-big",
        "mnist-large",
        tuple(f"{attack}, {norm}" for attack in ("PGM", "FGM", "IFGM") for norm in ("L2", "the sup-norm")),
        "4 and 2 epochs here, against 10 and 4 at the small budget.",
        "Largest difference changes by {PGM, L2:change} points in L2, {PGM, the sup-norm:change} in the "
        "sup-norm (PGM).",
        "Unequal epochs may make part of it.",
        "attacks.png",
    ),
    PaperRow(
        "fig:mnist-infwrm2",
        "mnist-inf",
        ("match, L2", "match, the sup-norm"),
        _SUP,
        "Largest gaps: {match, L2:PGM at 0.2 C} points in L2, {match, the sup-norm:FGM at 0.2 C} in the "
        "sup-norm.",
        "WRM of 4 epochs; after 10 the largest gap is 3 points.",
        "small.png",
    ),
    PaperRow(
        "fig:mnist-infwrm2big",
        "mnist-inf",
        (
            "natural images",
            "small attacks, L2",
            "large attacks, L2",
            "small attacks, the sup-norm",
            "large attacks, the sup-norm",
            "sup-norm most",
        ),
        _SUP,
        "At 0.3 C under PGM {large attacks, L2:PGM at 0.3 C} points in L2, "
        "{large attacks, the sup-norm:PGM at 0.3 C} in the sup-norm.",
        "WRM of 4 epochs; after 10 small attacks are undecided.",
        "large.png",
    ),
    PaperRow(
        "fig:mnist-proxsmall",
        "mnist-prox",
        ("match, L2", "match, the sup-norm"),
        f"Our proximal ascent, with steps of its own choice. {_SUP}",
        "Largest gaps under PGM: {match, L2:PGM at 0.2 C} points in L2, "
        "{match, the sup-norm:PGM at 0.2 C} in the sup-norm.",
        "WRM moves some images farther than the other methods' ε.",
        "small.png",
    ),
    PaperRow(
        "fig:mnist-proxbig",
        "mnist-prox",
        (
            "natural images",
            "small attacks, L2",
            "large attacks, L2",
            "small attacks, the sup-norm",
            "large attacks, the sup-norm",
            "sup-norm most",
        ),
        f"Our proximal ascent, with steps of its own choice. {_SUP}",
        "Natural images: {natural images:WRM} (WRM), {natural images:FGM} (FGM) wrong.",
        "WRM moves some images farther than the other methods' ε.",
        "large.png",
    ),
    *(
        PaperRow(
            f"tab:mnist-extra{number}",
            "mnist-bounds",
            (
                f"γ̄, table {number}",
                f"errors, table {number}",
                *(("heaviest, clean", "heaviest, robust") if number == 4 else ()),
            ),
            _TABLES_DIFFER,
            f"{{errors, table {number}:within 5 points}} of {{errors, table {number}:cells}} errors within 5 "
            f"points; γ̄ {{γ̄, table {number}:γ̄ by the paper's rule}}, printed {printed}.",
            _TABLES_WHY,
        )
        for number, printed in ((1, "1.97e6"), (2, "7770"), (3, "5060"), (4, "576"))
    ),
    PaperRow(
        "section:three-choose-two",
        "mnist-bounds",
        ("γ̄ of WRM", "small γ", "large γ", "penalty", "three wishes", "certified training"),
        _TABLES_DIFFER,
        "γ̄ of WRM over ERM's {γ̄ of WRM:table 1} (printed 0.62) to {γ̄ of WRM:table 4} (1.02).",
        "Unknown; one seed.",
    ),
    PaperRow(
        "fig:supremum",
        "dogs",
        ("features", "γ = 10⁵", "moved features", "proven γ", "steps", "convergence"),
        "CIFAR-10 is a stand-in for Stanford Dogs; steps in units of 1/2γ.",
        "With η = 10 as printed f falls without end; with ours it stands still.",
        "Steps must be below 1/γ; the printed 10 is above.",
        "supremum.png",
    ),
    PaperRow(
        "fig:dogs-theory",
        "dogs",
        ("attacked features",),
        "The stand-in has 10 classes, not 120; 300 photographs.",
        "Strongest PGM: {attacked features:strongest PGM, ERM} (ERM), "
        "{attacked features:strongest PGM, WRM, proven γ} (WRM at a proven γ).",
        "Another data set, and figures without numbers.",
        "theory.png",
    ),
    PaperRow(
        "fig:dogs-hacky",
        "dogs",
        ("pixels",),
        "Stand-in, 64 × 64, 3 epochs, without IFGM; cost on pixels in [0, 1].",
        "WRM farthest behind: {pixels:farthest behind, in points} points at γ = 1, {pixels:at γ = 30} at 30.",
        "The units of the paper's γ = 1 are not given; on pixels × 255 it is 65,025 here.",
        "hacky.png",
    ),
    PaperRow(
        "cart-pole, table",
        "cartpole",
        ("original", "light", "long", "soft g", "heavy", "short", "strong g", "worst of 27 systems"),
        "Episodes end at 24° (gymnasium: 12°); γ, discount and schedules are our choice.",
        "Strong gravity {strong g:nominal} → {strong g:robust}, short {short:nominal} → {short:robust}, "
        "heavy {heavy:nominal} → {heavy:robust}.",
        f"Heavy: {_NOT_KNOWN} At 12° strong gravity gives 218 robust steps.",
        "agents.png",
    ),
    PaperRow(
        "cart-pole, training curve",
        "cartpole",
        ("learning",),
        "20 agents of each kind.",
        "Robust training episodes are {learning:gain} steps longer.",
        "",
        "agents.png",
    ),
    PaperRow(
        "thm:convergence, sec:optimization",
        "convergence",
        ("bound", "order", "inner accuracy", "convex case", "smoothness"),
        "Linear softmax, for which the constants are proven.",
        "Bound over measured mean at least {bound:smallest ratio of bound to mean} times; exceeded by "
        "{bound:above the bound} of {bound:runs} runs.",
        "A bound from above tells no rate, so orders are not compared.",
        "rates.png",
    ),
    PaperRow(
        "theorem:dist-concentration, theorem:robustness",
        "generalization",
        ("bound", "rate", "one network", "covering numbers"),
        "A class of 4 weights in a ball, with known constants.",
        "Deviation {bound:proven} (proven), largest {bound:largest found} (estimated); power of n {rate:p}.",
        "Deep networks: only with assumed constants, and vacuous.",
        "deviations.png",
    ),
    PaperRow(
        "thm:nphard",
        "hardness",
        ("reduction", "ascents"),
        "3-SAT formulas of up to 18 variables.",
        "{reduction:equal} of {reduction:formulas} maxima equal the clauses that hold.",
        "",
        "missed.png",
    ),
    PaperRow(
        "sec:intro, runtime",
        "cost",
        ("runtime", "our ascent", "other methods"),
        "One processor; batches of 256.",
        "{runtime:times ERM} times ERM by 15 steps, {our ascent:times ERM} by our ascent.",
        "FGM takes one gradient, WRM sixteen.",
    ),
)
"""Every verdict about the paper stands in one row."""
