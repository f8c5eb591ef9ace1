"""Certificates: proven upper bounds on the worst case within a transport cost (theorem:robustness,
eqn:certify-tests)."""

from certus.certificates._audit import Audit, AuditedRadius, audit
from certus.certificates._certify import certify
from certus.certificates.cache import ProposalCache
from certus.certificates.certificate import AccuracyBracket, AttainedBudget, Bracket, Certificate
from certus.certificates.confidence import betting, dkw, empirical_bernstein, hoeffding
from certus.certificates.dual_values import AttackAggregate, DualAggregate, DualValues
from certus.certificates.engine import default_gammas
from certus.certificates.error_costs import worst_error
from certus.certificates.population import Population
from certus.certificates.problem import Problem
from certus.kernel.rules import Rule

__all__ = [
    "AccuracyBracket",
    "AttackAggregate",
    "AttainedBudget",
    "Audit",
    "AuditedRadius",
    "Bracket",
    "Certificate",
    "DualAggregate",
    "DualValues",
    "Population",
    "Problem",
    "ProposalCache",
    "Rule",
    "audit",
    "betting",
    "certify",
    "default_gammas",
    "dkw",
    "empirical_bernstein",
    "hoeffding",
    "worst_error",
]
