"""``certify``: one question, two ways to prove.

Without ``smoothing`` the network itself is read and bounded, layer by layer: ``certify_network``. With it,
noise is put on the inputs, and what is certified is the noisy model, known by its predictions alone:
``certify_any``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, overload

from torch import nn
from torch.utils.data import Dataset

from certus.bars import Told, share_bar
from certus.bounds.estimators import Unread, read_estimator, read_samples
from certus.certificates.certificate import Certificate
from certus.certificates.certify_options import NetworkOptions, SmoothingOptions
from certus.certificates.deterministic import certify_network
from certus.certificates.linear import certify_straight
from certus.certificates.proven.problem import Data
from certus.errors import ArgumentError, require
from certus.samples import AnySamples, read_whole
from certus.smoothing._certify import certify_any
from certus.smoothing.certificate import SmoothedCertificate
from certus.smoothing.predictors import AnyData
from certus.split import Split


@overload
def certify(
    model: nn.Module,
    data: Data | AnySamples,
    *,
    rho: float | Sequence[float] | None = None,
    smoothing: None = None,
    progress: bool | Told | None = None,
    **options: Unpack[NetworkOptions],
) -> Certificate: ...


@overload
def certify(
    model: object,
    data: AnyData,
    *,
    rho: float | Sequence[float] | None = None,
    smoothing: None = None,
    progress: bool | Told | None = None,
    **options: Unpack[NetworkOptions],
) -> Certificate: ...


@overload
def certify(
    model: object,
    data: AnyData,
    *,
    rho: float | Sequence[float],
    smoothing: float,
    progress: bool | Told | None = None,
    **options: Unpack[SmoothingOptions],
) -> SmoothedCertificate: ...


def certify(
    model: Any,
    data: Any,
    *,
    rho: float | Sequence[float] | None = None,
    smoothing: float | None = None,
    progress: bool | Told | None = None,
    **options: Any,
) -> Certificate | SmoothedCertificate:
    """Bracket the worst loss and error rate over all distributions within transport cost ρ of the data.

    In a terminal or a notebook a bar shows what is done; ``progress=False`` is silent, and a function is told
    the share that is done instead.

    Args:
        model: without ``smoothing``, a network of layers that certus can bound, or a linear model or
            perceptron of scikit-learn, alone or behind linear steps, which is read exactly
            (``certus.bounds.estimators``); with it, any torch module, any estimator with ``predict``, or any
            callable
            from arrays to labels or scores.
        data: a ``Split``; (inputs, targets) as tensors, arrays or frames of numbers; a torch ``Dataset`` or
            ``DataLoader``; or batches of both.
        rho: mean transport costs of interest, a mean *squared* distance; one or several. Without
            ``smoothing`` it may be left out where ``epsilon`` is given.
        smoothing: σ of Gaussian noise on the inputs.
        options: those of ``certificates.certify_network``, such as ``confidence``, ``clip`` and ``cost``; or
            with ``smoothing`` those of ``certificates.certify_any``, such as ``draws`` and ``votes``.

    >>> import torch
    >>> inputs = torch.linspace(-2, 2, 400)[:, None]
    >>> labels = (inputs[:, 0] > 0).long()
    >>> found = certify(lambda x: (x[:, 0] > 0).astype(int), (inputs, labels), rho=0.01, smoothing=0.25)
    >>> found.lower(0.01) <= found.bound(0.01) < 0.2
    True
    """
    if smoothing is None and isinstance(model, nn.Module):
        with share_bar(progress, "certifying") as told:
            return certify_network(model, data, rho=rho, progress=told, **options)
    if smoothing is None:
        return _certify_read(model, data, rho, options)  # which is done at once
    require(rho is not None, "rho", "be given with `smoothing`", rho)
    assert rho is not None
    if isinstance(data, Dataset):
        data = read_whole(data)
    with share_bar(progress, "certifying in noise") as told:
        return certify_any(model, data, rho=rho, smoothing=smoothing, progress=told, **options)


def _certify_read(model: Any, data: Any, rho: Any, options: dict[str, Any]) -> Certificate:
    """A fitted model of scikit-learn as the network that it is."""
    rule = "be a torch.nn.Module, or a fitted estimator with `predict`"
    require(callable(getattr(model, "predict", None)), "model", rule, type(model))
    try:
        reading = read_estimator(model)
    except Unread as reason:
        raise ArgumentError(
            f"`smoothing` must be given, the σ of noise on the inputs: {reason}, and noise certifies any "
            "model; got None."
        ) from None
    inputs, targets, weights = read_samples(reading, data)
    encoding = data.encoding if isinstance(data, Split) else None
    samples = (inputs, targets) if targets is None else Split(inputs, targets, weights, encoding)
    return certify_straight(reading.network, samples, rho=rho, **({"criterion": reading.criterion} | options))
