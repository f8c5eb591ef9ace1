"""``certify``: read a model, and bound its worst case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from torch import nn

from certus._progress import Told, share_bar
from certus.bounds.estimators import Unread, read_estimator, read_samples
from certus.certificates.certificate import Certificate
from certus.certificates.certify_options import NetworkOptions
from certus.certificates.deterministic import certify_network
from certus.certificates.linear import certify_straight
from certus.data import DataLike, Samples
from certus.errors import ArgumentError, require


def certify(
    model: Any,
    data: DataLike,
    *,
    rho: float | Sequence[float] | None = None,
    progress: bool | Told | None = None,
    **options: Unpack[NetworkOptions],
) -> Certificate:
    """Bracket the worst loss and error rate over all distributions within transport cost ρ of the data.

    In a terminal or a notebook a bar shows what is done; ``progress=False`` is silent, and a function is told
    the share that is done instead.

    Args:
        model: a network of layers that certus can bound, or a linear model or perceptron of scikit-learn,
            alone or behind linear steps, which is read exactly (``certus.bounds.estimators``). For any other
            model there is ``certify_smoothed``.
        data: ``Samples``; (inputs, targets) as tensors, arrays or frames of numbers; a torch ``Dataset`` or
            ``DataLoader``; or batches of both.
        rho: mean transport costs of interest, a mean *squared* distance; one or several. It may be left out
            where ``epsilon`` is given.
        options: those of ``certificates.certify_network``, such as ``confidence``, ``clip`` and ``cost``.

    >>> import torch
    >>> inputs, labels = torch.linspace(-2, 2, 40)[:, None], torch.arange(40) // 20
    >>> certificate = certify(nn.Linear(1, 2), (inputs, labels), rho=0.01)
    >>> certificate.lower(0.01) <= certificate.bound(0.01)
    True
    """
    if isinstance(model, nn.Module):
        with share_bar(progress, "certifying") as told:
            return certify_network(model, data, rho=rho, progress=told, **options)
    rule = "be a torch.nn.Module, or a fitted estimator with `predict`"
    require(callable(getattr(model, "predict", None)), "model", rule, type(model))
    try:
        reading = read_estimator(model)
    except Unread as reason:
        raise ArgumentError(
            f"`model` must be one that certus can read: {reason}. "
            "certus.certify_smoothed(model, data, rho=…, sigma=…) certifies any model, with noise."
        ) from None
    inputs, targets, weights = read_samples(reading, data)
    encoding = data.encoding if isinstance(data, Samples) else None
    samples = (inputs, targets) if targets is None else Samples(inputs, targets, weights, encoding)
    settings: dict[str, Any] = {"criterion": reading.criterion, **options}
    return certify_straight(reading.network, samples, rho=rho, **settings)
