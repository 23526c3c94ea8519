"""Integer programs for small cases, and as certificate for what the heuristics find (docs/placement/exact.md)."""

from placement.exact.assignment import Assignment, assigned
from placement.exact.balance import ExactBalance, heuristic, most_even
from placement.exact.balance_model import Objective
from placement.exact.clusters import Clusters, clusters, loads_of, objective_of
from placement.exact.exchange import cluster_tokens
from placement.exact.program import Certificate

__all__ = [
    "Assignment",
    "Certificate",
    "Clusters",
    "ExactBalance",
    "Objective",
    "assigned",
    "cluster_tokens",
    "clusters",
    "heuristic",
    "loads_of",
    "most_even",
    "objective_of",
]
