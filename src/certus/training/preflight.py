"""Preflight check: predict, before the training, which certificates a model can have and how tight they are.

The ratio of bounds to attained values grows with depth, the number of activations on a path from the inputs
to the outputs. The table has medians over random networks whose curvature and slope were maximised by ascent
(``benchmarks/random_networks.py``), and beyond depth 4 the smallest ratios over common architectures
(``benchmarks/zoo.py``). All are *estimated*, for networks that were not trained to be certified.
"""

from __future__ import annotations

from torch import nn

from certus.bounds.layer_rules import is_smooth
from certus.bounds.network import read_network
from certus.bounds.validation import smoothing_hint
from certus.errors import CertusError, UnreadableModelError
from certus.kernel.operators import Affine
from certus.kernel.passes import Shape

RATIOS = {
    1: (7.3, 2.6, "close"),
    2: (103.0, 8.6, "useful for small rho"),
    3: (1138.0, 27.0, "loose"),
    4: (12267.0, 108.0, "of little use beyond tiny rho"),
    9: (5e7, 3000.0, "of no use: prove by --smoothing"),
    17: (5e7, 4e6, "of no use: prove by --smoothing"),
}
"""Depth → ratios of the bounds on curvature and on slope to attained values, and a verdict."""


def certificate_outlook(model: nn.Module, shape: Shape) -> str:
    """Return a line about the certificates that a model can have."""
    try:
        graph = read_network(model, shape).graph
    except UnreadableModelError as reason:
        return f"This model cannot be certified without noise on its inputs. {reason}"
    except CertusError as reason:
        return f"Whether this model can be certified is not known: {reason}"
    depths = [0]  # the largest number of nonlinear layers on a path to each node
    for node in graph.nodes[1:]:
        bends = node.primitive is not None and not isinstance(node.primitive, Affine)
        depths.append(max(depths[index] for index in node.inputs) + bends)
    depth = depths[-1]
    if depth == 0:
        return "This model can be certified: it is affine, and its bounds are tight."
    curvature, slope, verdict = RATIOS[max(each for each in RATIOS if each <= depth)]
    more = "over " if depth > 4 else "about "
    kinked = next((node for node in graph.nodes if node.primitive and not is_smooth(node.primitive)), None)
    words = f"{more}{slope:g} times the attained slope at depth {depth} ({verdict})"
    if kinked is not None:
        return (
            f"This model can be certified by its slope only, since {kinked.name or kinked.kind} "
            f"({kinked.kind}) has kinks: bounds on slopes are {words}. {smoothing_hint(model, shape)}"
        )
    return (
        f"This model can be certified by its slope and its curvature: bounds on the slope are typically "
        f"{words}, and bounds on the curvature {more}{curvature:g} times the attained curvature. "
        "Training with --certified keeps them close."
    )
