"""Certificates: proven upper bounds on the worst case within a transport cost (theorem:robustness,
eqn:certify-tests)."""

from certus.certificates._certify import certify
from certus.certificates.aggregate import AttackAggregate, DualAggregate
from certus.certificates.cache import DualValueCache
from certus.certificates.certificate import AccuracyBracket, AttainedBudget, Bracket, Certificate
from certus.certificates.dual_values import DualValues
from certus.certificates.engine import default_gammas
from certus.certificates.population import Population
from certus.certificates.proven.concentration import betting, dkw, empirical_bernstein, hoeffding
from certus.certificates.proven.duality_gap import Rule
from certus.certificates.proven.knapsack import worst_error
from certus.certificates.proven.problem import Problem

__all__ = [
    "AccuracyBracket",
    "AttackAggregate",
    "AttainedBudget",
    "Bracket",
    "Certificate",
    "DualAggregate",
    "DualValueCache",
    "DualValues",
    "Population",
    "Problem",
    "Rule",
    "betting",
    "certify",
    "default_gammas",
    "dkw",
    "empirical_bernstein",
    "hoeffding",
    "worst_error",
]
