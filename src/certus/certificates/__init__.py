"""Certificates: proven upper bounds on the worst case within a transport cost (theorem:robustness,
eqn:certify-tests)."""

from certus.certificates.accuracy import AccuracyBracket
from certus.certificates.any_model import certify_any
from certus.certificates.certificate import Bracket, Certificate, Reached
from certus.certificates.certify import certify_network
from certus.certificates.entry import certify
from certus.certificates.exact import certify_straight
from certus.certificates.gamma_grid import default_gammas
from certus.certificates.levels import Level
from certus.certificates.lines import Line, Push
from certus.certificates.population import Population
from certus.certificates.proven.concentration import betting, dkw, empirical_bernstein, hoeffding
from certus.certificates.proven.gap import Rule
from certus.certificates.proven.knapsack import worst_error
from certus.certificates.proven.problem import Problem
from certus.certificates.smoothing.deployment import Radius, Smoothed
from certus.certificates.smoothing.noisy_certificate import Quantity, SmoothedBracket, SmoothedCertificate

__all__ = [
    "AccuracyBracket",
    "Bracket",
    "Certificate",
    "Level",
    "Line",
    "Population",
    "Problem",
    "Push",
    "Quantity",
    "Radius",
    "Reached",
    "Rule",
    "Smoothed",
    "SmoothedBracket",
    "SmoothedCertificate",
    "betting",
    "certify",
    "certify_any",
    "certify_network",
    "certify_straight",
    "default_gammas",
    "dkw",
    "empirical_bernstein",
    "hoeffding",
    "worst_error",
]
