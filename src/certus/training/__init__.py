"""Training by Algorithm 1: one loop for every method (alg:thealg)."""

from certus._epoch_metrics import EpochMetrics
from certus.training._fit import Callback, Fit, TrainingState, fit
from certus.training.augmentation import RandomAffine, RandomFlip, RandomTranslation
from certus.training.calibration import Robustness, RobustnessStatus, calibrate, measure_robustness
from certus.training.callbacks import MetricsLogger
from certus.training.certified import CertifiedTraining
from certus.training.optimizers import (
    ConvergenceConstants,
    Projection,
    SpectralBall,
    WeightBall,
    WeightBox,
    decay_groups,
    early_and_late,
)
from certus.training.theory import TheoryReport

__all__ = [
    "Callback",
    "CertifiedTraining",
    "ConvergenceConstants",
    "EpochMetrics",
    "Fit",
    "MetricsLogger",
    "Projection",
    "RandomAffine",
    "RandomFlip",
    "RandomTranslation",
    "Robustness",
    "RobustnessStatus",
    "SpectralBall",
    "TheoryReport",
    "TrainingState",
    "WeightBall",
    "WeightBox",
    "calibrate",
    "decay_groups",
    "early_and_late",
    "fit",
    "measure_robustness",
]
