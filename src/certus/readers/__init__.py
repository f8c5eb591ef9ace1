"""Other people's fitted models as networks that certus can bound."""

from certus.readers.equivalence import read_samples
from certus.readers.estimators import read_estimator
from certus.readers.model_reading import Reading, Unread

__all__ = ["Reading", "Unread", "read_estimator", "read_samples"]
