"""Certificates: proven upper bounds on the worst case within a transport cost (theorem:robustness,
eqn:certify-tests)."""

from certus.certificates.certificate import Bracket, Certificate, Reached
from certus.certificates.certify import certify, default_gammas
from certus.certificates.levels import Level
from certus.certificates.lines import Line, Push
from certus.certificates.population import Population
from certus.certificates.proven.concentration import betting, dkw, empirical_bernstein, hoeffding
from certus.certificates.proven.gap import Rule
from certus.certificates.proven.knapsack import worst_error
from certus.certificates.proven.problem import Problem

__all__ = [
    "Bracket",
    "Certificate",
    "Level",
    "Line",
    "Population",
    "Problem",
    "Push",
    "Reached",
    "Rule",
    "betting",
    "certify",
    "default_gammas",
    "dkw",
    "empirical_bernstein",
    "hoeffding",
    "worst_error",
]
