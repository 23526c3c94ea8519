"""The mix problem as PuLP programs: the only place that builds one.

Rows are added by `constraints`, each under its name in docs/formulation.md, section 3; `programs` puts them together to
the questions of section 4.  A bucket is split continuously over the routes, so there are no slices, and none of the
symmetry that interchangeable slices bring.
"""

from planner.ilp.duals import Relaxation, relaxation
from planner.ilp.model import MixModel
from planner.ilp.programs import (
    cheapest,
    cheapest_serving,
    fewest_gpus,
    goal_terms,
    least_missing,
    most_even,
    most_served,
)

__all__ = [
    "MixModel",
    "Relaxation",
    "cheapest",
    "cheapest_serving",
    "fewest_gpus",
    "goal_terms",
    "least_missing",
    "most_even",
    "most_served",
    "relaxation",
]
