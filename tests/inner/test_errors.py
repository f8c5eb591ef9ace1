"""Bad input is refused with the parameter, the rule and the value; a table of everything that must raise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import certus
from certus import WRM, Box, CrossEntropy, ModelLoss, SquaredL2
from certus.costs import (
    Bregman,
    LabelCost,
    Mahalanobis,
    Masked,
    SquaredLp,
    SquaredSup,
    WeightedL2,
    feature_mask,
    patch_mask,
)
from certus.datasets import rings
from certus.domains import Ball
from certus.errors import ArgumentError, LossError, UnsupportedError
from certus.inner import BarzilaiBorwein, PaperAscent
from certus.losses import SquaredError
from certus.norms import Lp

X, Y = torch.zeros(3, 2), torch.tensor([0, 1, 0])
LOSS = ModelLoss(nn.Linear(2, 2), CrossEntropy())
# What the type checker would refuse.
ARRAY: Any = X.numpy()
PAIR: Any = (0, 1)
NAME: Any = "l2"
TEXT: Any = "2"
KIND: Any = BarzilaiBorwein
LIST: Any = [1.0, 2.0]
HALF: Any = 2.5
NUMBER: Any = lambda z: 1.0  # noqa: E731
NAN = torch.tensor([[0.0, 0.0], [math.nan, 0.0], [0.0, math.inf]])

TABLE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    # penalties
    "gamma zero": (lambda: WRM(0.0), ArgumentError, "`gamma` must be positive and finite; got 0.0."),
    "gamma negative": (lambda: WRM(-1.0), ArgumentError, "`gamma` must be positive and finite; got -1.0."),
    "gamma nan": (lambda: WRM(math.nan), ArgumentError, "`gamma` must be positive and finite; got nan."),
    "gamma infinite": (lambda: WRM(math.inf), ArgumentError, "`gamma` must be positive and finite; got inf."),
    "gamma text": (lambda: WRM(TEXT), ArgumentError, "`gamma` must be a number or a tensor; got '2'."),
    "gamma too large for the dtype": (
        lambda: WRM(1e300)(LOSS, X, Y),
        ArgumentError,
        "`gamma` must be positive and finite in the inputs' torch.float32; got 1e+300.",
    ),
    "gamma shape": (
        lambda: WRM(torch.ones(2)).solve(LOSS, X, Y),
        ArgumentError,
        "`gamma` must be a number or have shape (3,), one penalty per sample; got shape (2,).",
    ),
    "gamma and rho": (lambda: WRM(1.0, rho=1.0), ArgumentError, "either `gamma` or `rho`"),
    "neither": (lambda: WRM(), ArgumentError, "either `gamma` or `rho`"),
    "rho negative": (lambda: WRM(rho=-0.1), ArgumentError, "`rho` must be positive and finite; got -0.1."),
    "idle floor": (
        lambda: WRM(1.0, gamma_min=0.1),
        ArgumentError,
        "`gamma_min` must be left out with a fixed",
    ),
    "floor": (lambda: WRM(rho=0.1, gamma_min=0.0), ArgumentError, "`gamma_min` must be positive"),
    "rho unseen": (
        lambda: WRM(rho=0.1).eval().solve(LOSS, X, Y),
        ArgumentError,
        "`gamma` is undefined: solve a batch in train() mode",
    ),
    "state": (
        lambda: WRM(1.0).load_state_dict({"gamma": 1.0}),
        ArgumentError,
        "must have the keys []; got ['gamma']",
    ),
    "bound": (
        lambda: WRM(1.0).solve(LOSS, X, Y, curvature_bound=math.nan),
        ArgumentError,
        "`curvature_bound` must be a finite number; got nan.",
    ),
    "bound text": (
        lambda: WRM(1.0).solve(LOSS, X, Y, curvature_bound=TEXT),
        ArgumentError,
        "`curvature_bound` must be a finite number; got 2.",
    ),
    "rho text": (lambda: WRM(rho=TEXT), ArgumentError, "`rho` must be positive and finite; got 2."),
    "state value": (
        lambda: WRM(rho=0.1).load_state_dict({"gamma": -3.0}),
        ArgumentError,
        "`gamma` must be positive and finite; got -3.0.",
    ),
    "maximizer": (
        lambda: WRM(1.0, maximizer=KIND),
        ArgumentError,
        "`maximizer` must be a Maximizer, such as",
    ),
    "label cost type": (lambda: WRM(1.0, label_cost=NAME), ArgumentError, "`label_cost` must be a LabelCost"),
    # inputs
    "nan": (
        lambda: WRM(1.0)(LOSS, NAN, Y),
        ArgumentError,
        "`inputs` must be finite; got NaN or infinity at samples 1, 2.",
    ),
    "empty": (
        lambda: WRM(1.0)(LOSS, X[:0], Y[:0]),
        ArgumentError,
        "`inputs` must not be empty; got shape (0, 2).",
    ),
    "integers": (
        lambda: WRM(1.0)(LOSS, X.long(), Y),
        ArgumentError,
        "`inputs` must be of a floating-point dtype; got torch.int64.",
    ),
    "no batch": (
        lambda: WRM(1.0)(LOSS, X[0], Y[0]),
        ArgumentError,
        "`inputs` must have shape (batch, …); got shape (2,).",
    ),
    "not a tensor": (lambda: WRM(1.0)(LOSS, ARRAY, Y), ArgumentError, "`inputs` must be a tensor"),
    "dtype": (
        lambda: WRM(1.0)(LOSS, X.double(), Y),
        LossError,
        "`inputs` must have the model's dtype torch.float32; got torch.float64.",
    ),
    "device": (
        lambda: WRM(1.0)(LOSS, X, Y.to("meta")),
        ArgumentError,
        "`targets` must be on the device cpu of `inputs`; got meta.",
    ),
    "model device": (
        lambda: ModelLoss(nn.Linear(2, 2, device="meta"))(X, Y),
        LossError,
        "`inputs` must have the model's device meta; got cpu.",
    ),
    # targets
    "count": (
        lambda: WRM(1.0)(LOSS, X, Y[:2]),
        ArgumentError,
        "`targets` must have one entry for each of the 3 inputs; got shape (2,).",
    ),
    "targets nan": (
        lambda: WRM(1.0)(ModelLoss(nn.Linear(2, 1), SquaredError()), X, torch.tensor([0.0, math.nan, 0.0])),
        ArgumentError,
        "`targets` must be finite; got NaN or infinity at sample 1.",
    ),
    "label high": (
        lambda: WRM(1.0)(LOSS, X, Y + 1),
        LossError,
        "`targets` must be labels from 0 to 1; got 2 at sample 1.",
    ),
    "label negative": (
        lambda: WRM(1.0)(LOSS, X, Y - 100),
        LossError,
        "`targets` must be labels from 0 to 1; got -100 at samples 0, 1, 2.",
    ),
    "label floats": (
        lambda: WRM(1.0)(LOSS, X, Y.float()),
        LossError,
        "dtype torch.int64; got shape (3,) and dtype torch.float32.",
    ),
    "label shape": (lambda: WRM(1.0)(LOSS, X, Y[:, None]), LossError, "`targets` of shape (3,)"),
    "outputs": (
        lambda: CrossEntropy()(torch.zeros(3), Y),
        LossError,
        "CrossEntropy needs outputs of shape (batch, classes); got (3,).",
    ),
    "regression": (
        lambda: SquaredError()(torch.zeros(3, 2), torch.zeros(3)),
        LossError,
        "SquaredError needs as many targets as outputs, (3, 2); got (3,).",
    ),
    # domains
    "outside": (
        lambda: WRM(1.0, domain=Box(0.5, 1.0))(LOSS, X, Y),
        ArgumentError,
        "`inputs` must lie in the domain Box; `domain.project(inputs)` moves them there; "
        "got points outside at samples 0, 1, 2.",
    ),
    "bounds crossed": (lambda: Box(1.0, 0.0), ArgumentError, "`lower` must be at most `upper` everywhere"),
    "bounds nan": (
        lambda: Box(math.nan, 0.0),
        ArgumentError,
        "`lower` must be at most `upper` everywhere, without NaN",
    ),
    "bounds shapes": (
        lambda: Box(torch.zeros(2), torch.ones(3)),
        ArgumentError,
        "must have shapes that broadcast; got (2,) and (3,).",
    ),
    "bounds do not fit": (
        lambda: WRM(1.0, domain=Box(torch.full((3,), -1.0), 1.0))(LOSS, X, Y),
        ArgumentError,
        "`lower` must broadcast to the shape (2,) of one input; got shape (3,).",
    ),
    "center nan": (lambda: Ball(math.nan, 1.0), ArgumentError, "`center` must be finite; got nan."),
    "radius": (lambda: Ball(0.0, 0.0), ArgumentError, "`radius` must be positive and finite; got 0.0."),
    "center": (
        lambda: WRM(1.0, domain=Ball(torch.zeros(3), 1.0))(LOSS, X, Y),
        ArgumentError,
        "`center` must broadcast to the shape (2,)",
    ),
    "domain type": (
        lambda: WRM(1.0, domain=PAIR)(LOSS, X, Y),
        ArgumentError,
        "`domain` must be a Domain, such as Box(0, 1); got (0, 1).",
    ),
    # costs
    "cost type": (
        lambda: WRM(1.0, cost=NAME)(LOSS, X, Y),
        ArgumentError,
        "`cost` must be a Cost, such as SquaredL2(); got l2.",
    ),
    "cost shapes": (
        lambda: SquaredL2()(X, X[:2]),
        ArgumentError,
        "`moved` must have the shape (2, 2) of `origin`; got (3, 2).",
    ),
    "p below": (lambda: SquaredLp(0.5), ArgumentError, "`p` must lie between 1 and 2"),
    "p above": (
        lambda: SquaredLp(3.0),
        ArgumentError,
        "`p` must lie between 1 and 2 (for larger p take SquaredSup, whose certificates hold for all of "
        "them); got 3.0.",
    ),
    "norm": (lambda: Lp(0.5), ArgumentError, "`p` must be at least 1; got 0.5."),
    "weights": (
        lambda: WeightedL2(torch.tensor([1.0, 0.0])),
        ArgumentError,
        "`weights` must be positive and finite",
    ),
    "weights list": (
        lambda: WeightedL2(LIST),
        ArgumentError,
        "`weights` must be a tensor; got <class 'list'>.",
    ),
    "weights shape": (
        lambda: WRM(1.0, cost=WeightedL2(torch.ones(3)))(LOSS, X, Y),
        ArgumentError,
        "`weights` must broadcast to the shape (2,)",
    ),
    "matrix of integers": (
        lambda: Mahalanobis(torch.ones(2, 2, dtype=torch.long)),
        ArgumentError,
        "`matrix` must be a tensor of a floating-point dtype",
    ),
    "slightly skew": (
        lambda: Mahalanobis(torch.tensor([[1e-8, 5e-9], [0.0, 1e-8]])),
        ArgumentError,
        "`matrix` must be symmetric, to 1e-5 of its largest entry; (M + M.T) / 2 is; got a relative",
    ),
    "not square": (
        lambda: Mahalanobis(torch.ones(2, 3)),
        ArgumentError,
        "`matrix` must be square; got shape (2, 3).",
    ),
    "not finite": (lambda: Mahalanobis(torch.tensor([[math.nan]])), ArgumentError, "`matrix` must be finite"),
    "not symmetric": (
        lambda: Mahalanobis(torch.tensor([[1.0, 1.0], [0.0, 1.0]])),
        ArgumentError,
        "`matrix` must be symmetric, to 1e-5 of its largest entry; (M + M.T) / 2 is; got a relative",
    ),
    "not definite": (
        lambda: Mahalanobis(torch.diag(torch.tensor([1.0, -1.0]))),
        ArgumentError,
        "`matrix` must be positive definite; got smallest eigenvalue -1.",
    ),
    "matrix size": (
        lambda: WRM(1.0, cost=Mahalanobis(torch.eye(3)))(LOSS, X, Y),
        ArgumentError,
        "`matrix` must be 2 × 2 for inputs of 2 numbers; got (3, 3).",
    ),
    "modulus": (
        lambda: Bregman(lambda z: z.sum(1), modulus=0.0),
        ArgumentError,
        "`modulus` must be positive and finite; got 0.0.",
    ),
    "potential detached": (
        lambda: Bregman(lambda z: z.detach().sum(1), modulus=1.0)(X, X),
        ArgumentError,
        "`potential` must be differentiable",
    ),
    "one point": (lambda: SquaredL2()(X[0], X[0]), ArgumentError, "`moved` must have shape (batch, …)"),
    "potential": (
        lambda: Bregman(lambda z: (z**2).sum(), modulus=1.0)(X, X),
        ArgumentError,
        "`potential` must return one value per sample, shape (3,); got shape ().",
    ),
    "mask dtype": (
        lambda: Masked(SquaredL2(), torch.ones(2)),
        ArgumentError,
        "`mask` must be a bool tensor (True = may move); got torch.float32.",
    ),
    "mask list": (lambda: Masked(SquaredL2(), LIST), ArgumentError, "`mask` must be a bool tensor"),
    "mask inner": (lambda: Masked(KIND, torch.tensor([True])), ArgumentError, "`inner` must be a Cost"),
    "patch outside": (
        lambda: patch_mask(4, 4, slice(7, 9), slice(0, 1)),
        ArgumentError,
        "`rows` and `columns` must meet the 4 × 4 image",
    ),
    "mask empty": (
        lambda: Masked(SquaredL2(), torch.zeros(2, dtype=torch.bool)),
        ArgumentError,
        "`mask` must let at least one coordinate move",
    ),
    "mask twice": (
        lambda: Masked(Masked(SquaredL2(), torch.tensor([True])), torch.tensor([True])),
        ArgumentError,
        "`inner` must not be masked itself",
    ),
    "mask shape": (
        lambda: WRM(1.0, cost=Masked(SquaredL2(), torch.tensor([True, False, True])))(LOSS, X, Y),
        ArgumentError,
        "`mask` must broadcast to the shape (2,)",
    ),
    "mask in a ball": (
        lambda: WRM(1.0, cost=Masked(SquaredL2(), torch.tensor([True, False])), domain=Ball(0.0, 1.0))(
            LOSS, X, Y
        ),
        UnsupportedError,
        "`domain` must be Unbounded or a Box for a Masked cost; got Ball",
    ),
    "features": (
        lambda: feature_mask(3, free=[3]),
        ArgumentError,
        "`free` must hold indices from 0 to 2; got [3].",
    ),
    "slope of L1": (
        lambda: SquaredLp(1.0).gradient(X, X),
        UnsupportedError,
        "SquaredLp(p=1) is not differentiable;",
    ),
    "slope of sup": (
        lambda: SquaredSup().gradient(X, X),
        UnsupportedError,
        "SquaredSup is not differentiable;",
    ),
    "label price": (lambda: LabelCost(math.inf, 3), ArgumentError, "`price` must be positive and finite"),
    "label classes": (
        lambda: LabelCost(1.0, 1),
        ArgumentError,
        "`classes` must be a whole number, at least 2; got 1.",
    ),
    "label cost called": (
        lambda: WRM(1.0, label_cost=LabelCost(1.0, 2))(LOSS, X, Y),
        UnsupportedError,
        "labels move too: call `solve`",
    ),
    "label cost targets": (
        lambda: WRM(1.0, label_cost=LabelCost(1.0, 2)).solve(lambda z: z.sum(1), X),
        ArgumentError,
        "`targets` must be (batch,) int64 labels for a label cost; got None.",
    ),
    "label cost range": (
        lambda: WRM(1.0, label_cost=LabelCost(1.0, 2)).solve(LOSS, X, Y + 1),
        ArgumentError,
        "`targets` must be labels from 0 to 1, the classes of `label_cost`; got others at sample 1.",
    ),
    # losses
    "not callable": (
        lambda: WRM(1.0)(PAIR, X),
        ArgumentError,
        "`loss` must be callable; got <class 'tuple'>.",
    ),
    "model as loss": (
        lambda: WRM(1.0)(nn.Linear(2, 2), X, Y),
        LossError,
        "`loss` must accept (inputs, targets): too many positional arguments. ModelLoss(model, criterion)",
    ),
    "targets forgotten": (
        lambda: WRM(1.0)(LOSS, X),
        LossError,
        "`loss` must accept (inputs): missing a required argument: 'targets'",
    ),
    "mean": (
        lambda: WRM(1.0)(lambda z: z.sum(), X),
        LossError,
        'The loss must return one number per sample; it returned a single number. Use reduction="none"',
    ),
    "criterion mean": (
        lambda: ModelLoss(nn.Linear(2, 2), nn.MultiMarginLoss()),
        LossError,
        "`criterion` must return one number per sample; got reduction='mean'",
    ),
    "complex loss": (
        lambda: WRM(1.0)(lambda z: torch.complex(z, z).sum(1), X),
        LossError,
        "real floating-point numbers; got torch.complex64.",
    ),
    "loss shape": (
        lambda: WRM(1.0)(lambda z: z, X),
        LossError,
        "one number per sample, shape (3,); got shape (3, 2).",
    ),
    "loss type": (
        lambda: WRM(1.0)(NUMBER, X),
        LossError,
        "The loss must return a tensor of shape (batch,)",
    ),
    "detached": (
        lambda: WRM(1.0)(lambda z: z.detach().sum(1), X),
        LossError,
        "The loss must be differentiable in its inputs",
    ),
    "constant": (
        lambda: WRM(1.0)(lambda z: torch.ones(3, requires_grad=True), X),
        LossError,
        "The loss must be differentiable in its inputs",
    ),
    "model": (lambda: ModelLoss(NUMBER), ArgumentError, "`model` must be a torch.nn.Module"),
    "smoothing": (lambda: CrossEntropy(1.0), ArgumentError, "`label_smoothing` must lie in [0, 1); got 1.0."),
    # maximisers and estimates
    "tolerance": (
        lambda: BarzilaiBorwein(tolerance=-1.0),
        ArgumentError,
        "`tolerance` must not be negative; got -1.0.",
    ),
    "budget": (
        lambda: BarzilaiBorwein(max_gradients=0),
        ArgumentError,
        "`max_gradients` must be a whole number, at least 1; got 0.",
    ),
    "steps": (
        lambda: PaperAscent(steps=0),
        ArgumentError,
        "`steps` must be a whole number, at least 1; got 0.",
    ),
    "half a gradient": (lambda: BarzilaiBorwein(max_gradients=HALF), ArgumentError, "at least 1; got 2.5."),
    "paper tolerance": (
        lambda: PaperAscent(tolerance=-1.0),
        ArgumentError,
        "`tolerance` must not be negative",
    ),
    "products": (
        lambda: certus.inner.largest_curvature(LOSS, X, Y, max_products=0),
        ArgumentError,
        "`max_products` must be a whole number, at least 1",
    ),
    "residual": (
        lambda: certus.inner.largest_curvature(LOSS, X, Y, tolerance=0.0),
        ArgumentError,
        "`tolerance` must be positive",
    ),
    "batches": (
        lambda: certus.inner.concave_share(LOSS, X, Y, gamma=1.0, batch_size=0),
        ArgumentError,
        "`batch_size` must be a whole number, at least 1",
    ),
    "share gamma": (
        lambda: certus.inner.concave_share(LOSS, X, Y, gamma=0.0),
        ArgumentError,
        "`gamma` must be positive and finite; got 0.0.",
    ),
    "rings": (lambda: rings(train=0), ArgumentError, "`train` must be at least 1; got 0."),
}


@pytest.mark.parametrize(("work", "kind", "message"), TABLE.values(), ids=TABLE.keys())
def test_refused(work: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        work()
    assert issubclass(kind, certus.CertusError)
