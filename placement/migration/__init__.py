"""Migration from the current placement: the fewest moves, their schedule, and their cost and benefit.

docs/explanation/placement/migration.md has the formulas.  `minimise_moves`, `schedule_moves` and `decide` are the
entries.
"""

from placement.migration.cost_benefit import (
    CostBenefit,
    Decision,
    Levels,
    Window,
    decide,
    evaluate_migration,
    idle_up_to,
)
from placement.migration.min_moves import Migration, minimise_moves
from placement.migration.move_order import Step, steps_of_layer
from placement.migration.moves import moved_copies, moved_per_layer
from placement.migration.relabelling import relabelled
from placement.migration.schedule import Batch, Links, Schedule, schedule_moves

__all__ = [
    "Batch",
    "CostBenefit",
    "Decision",
    "Levels",
    "Links",
    "Migration",
    "Schedule",
    "Step",
    "Window",
    "decide",
    "evaluate_migration",
    "idle_up_to",
    "minimise_moves",
    "moved_copies",
    "moved_per_layer",
    "relabelled",
    "schedule_moves",
    "steps_of_layer",
]
