"""From the placement now loaded to a better one: which copies move, when, and whether it is worth it."""

from placement.migration.cost_benefit import Decision, Levels, Window, Worth, decided, rests_up_to, worth_of
from placement.migration.min_moves import Migration, fewest_moves
from placement.migration.move_order import Step, steps_of_layer
from placement.migration.moves import moved_copies, moved_per_layer
from placement.migration.relabelling import relabelled
from placement.migration.schedule import Batch, Links, Schedule, scheduled

__all__ = [
    "Batch",
    "Decision",
    "Levels",
    "Links",
    "Migration",
    "Schedule",
    "Step",
    "Window",
    "Worth",
    "decided",
    "fewest_moves",
    "moved_copies",
    "moved_per_layer",
    "relabelled",
    "rests_up_to",
    "scheduled",
    "steps_of_layer",
    "worth_of",
]
