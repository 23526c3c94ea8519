"""Migration from the current placement: the fewest moves, their schedule, and their cost and benefit.

docs/explanation/placement/migration.md has the formulas.  `minimise_moves`, `schedule_moves` and `decide` are the
entries.
"""

from placement.migration.cost_benefit import Levels, Window, decide
from placement.migration.min_moves import minimise_moves
from placement.migration.moves import moved_copies, relabelled
from placement.migration.schedule import Links, schedule_moves

__all__ = [
    "Levels",
    "Links",
    "Window",
    "decide",
    "minimise_moves",
    "moved_copies",
    "relabelled",
    "schedule_moves",
]
