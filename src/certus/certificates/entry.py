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

from certus.certificates.any_model import certify_any
from certus.certificates.certificate import Certificate
from certus.certificates.certify import certify_network
from certus.certificates.certify_options import NetworkOptions, SmoothingOptions
from certus.certificates.proven.problem import Data
from certus.certificates.smoothing.noisy_certificate import SmoothedCertificate
from certus.certificates.smoothing.predictors import AnyData
from certus.errors import require
from certus.samples import AnySamples, read_whole


@overload
def certify(
    model: nn.Module,
    data: Data | AnySamples,
    *,
    rho: float | Sequence[float] | None = None,
    smoothing: None = None,
    **options: Unpack[NetworkOptions],
) -> Certificate: ...


@overload
def certify(
    model: object,
    data: AnyData,
    *,
    rho: float | Sequence[float],
    smoothing: float,
    **options: Unpack[SmoothingOptions],
) -> SmoothedCertificate: ...


def certify(
    model: Any,
    data: Any,
    *,
    rho: float | Sequence[float] | None = None,
    smoothing: float | None = None,
    **options: Any,
) -> Certificate | SmoothedCertificate:
    """Bracket the worst loss and error rate over all distributions within transport cost ρ of the data.

    Args:
        model: without ``smoothing``, a network of layers that certus can bound; with it, any torch module,
            any estimator with ``predict``, or any callable from arrays to labels or scores.
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
    if smoothing is None:
        return certify_network(model, data, rho=rho, **options)
    require(rho is not None, "rho", "be given with `smoothing`", rho)
    assert rho is not None
    if isinstance(data, Dataset):
        data = read_whole(data)
    return certify_any(model, data, rho=rho, smoothing=smoothing, **options)
