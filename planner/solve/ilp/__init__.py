"""The mix problem as PuLP programs: the only place that builds one.

Rows are added by `constraints`, each under its name in docs/formulation.md, section 3; `programs` puts them together to
the questions of section 4.  A bucket is split continuously over the routes, so there are no slices, and none of the
symmetry that interchangeable slices bring.
"""

from planner.solve.ilp.constraints import add_service, add_survivor_cut, left_of
from planner.solve.ilp.model import MixModel
from planner.solve.ilp.programs import (
    cheapest,
    cheapest_counts,
    cheapest_serving,
    fewest_gpus,
    fewest_gpus_of_counts,
    least_missing,
    most_even,
    most_served,
    objective_terms,
)

__all__ = [
    "MixModel",
    "add_service",
    "add_survivor_cut",
    "cheapest",
    "cheapest_counts",
    "cheapest_serving",
    "fewest_gpus",
    "fewest_gpus_of_counts",
    "least_missing",
    "left_of",
    "most_even",
    "most_served",
    "objective_terms",
]
