"""Monitoring: comparison of new data with the certified ones."""

from certus.monitoring._monitor import (
    ColumnMove,
    Distance,
    Monitor,
    MonitorResult,
    Position,
    Realised,
    Verdict,
)

__all__ = ["ColumnMove", "Distance", "Monitor", "MonitorResult", "Position", "Realised", "Verdict"]
