"""From the placement now loaded to a better one: which copies move, when, and whether it is worth it."""

from placement.migration.fewest import Migration, fewest_moves
from placement.migration.moves import moved_copies, moved_per_layer
from placement.migration.relabelling import relabelled
from placement.migration.schedule import Batch, Links, Schedule, scheduled
from placement.migration.steps import Step, steps_of_layer
from placement.migration.worth import Decision, Levels, Window, Worth, decided, rests_up_to, worth_of

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
