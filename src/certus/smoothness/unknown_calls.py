"""A call in a graph that has no rule: named with the user's own line, and with what to do."""

from __future__ import annotations

from dataclasses import dataclass

from certus.errors import UnsupportedError

_NORM = "batch norm, which is affine in eval mode"
_INSTEAD = {
    **dict.fromkeys(("layernorm", "nativelayernorm", "groupnorm", "instancenorm", "rmsnorm"), _NORM),
    "hardswish": "torch.nn.functional.silu",
    "hardsigmoid": "torch.sigmoid",
    "prelu": "torch.nn.functional.elu",
    "softmax": "plain outputs, if it is the last layer",
    "adaptivemaxpool2d": "adaptive average pooling",
}


@dataclass(frozen=True)
class UnknownCall:
    """Attributes:
    path, kind: the module that it is in, or is all of, and the function.
    line: of the user, as FILE:LINE: `code`; empty if it is unknown.
    reason: why there is no rule for it.
    """

    path: str
    kind: str
    line: str
    reason: str

    @property
    def advice(self) -> str:
        """What to put in its place."""
        if "randomness" in self.reason:
            return "nothing in eval mode, `if self.training`"
        name = (
            f"@certus.smoothness.rule({self.kind})" if self.kind[:1].isupper() else "@certus.smoothness.rule"
        )
        own = f"a module of its own with a rule that you register, {name}, which is then assumed"
        instead = _INSTEAD.get(self.kind.lower().replace("_", ""))
        return f"{instead}, or {own}" if instead else own

    @property
    def where(self) -> str:
        return f" in {self.line}" if self.line else ""


class UnknownCallError(UnsupportedError):
    """A call in a graph has no rule."""

    def __init__(self, unknown: UnknownCall) -> None:
        place = unknown.path or "the model itself"
        super().__init__(
            f"Nothing can be proven through {unknown.kind} ({place}){unknown.where}: {unknown.reason}. "
            f"Put in its place: {unknown.advice}. certus.smoothness.validate(model) lists every such call; "
            "certify(…, smoothing=…) proves by noise on the inputs, and needs no rule."
        )
        self.unknown = unknown
