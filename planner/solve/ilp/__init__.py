"""The mix problem as PuLP programs.

`constraints` adds each row under its name in docs/explanation/planner/formulation.md, section 3; `programs` combines
them to the programs of section 4.  Shares are continuous, so there are no slices and none of their symmetry.
"""

from planner.solve.ilp.constraints import add_service, add_survivor_cut
from planner.solve.ilp.model import MixModel
from planner.solve.ilp.programs import (
    cheapest,
    cheapest_serving,
    fewest_gpus,
    max_served,
    min_max_load,
    min_shortage,
    objective_terms,
)

__all__ = [
    "MixModel",
    "add_service",
    "add_survivor_cut",
    "cheapest",
    "cheapest_serving",
    "fewest_gpus",
    "max_served",
    "min_max_load",
    "min_shortage",
    "objective_terms",
]
