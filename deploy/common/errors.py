"""What goes wrong when acting on the world.

ActuationError
├── UnreachableError      the target did not answer, or said that it cannot now; the next try may succeed
├── PlanUnusableError     the plan must not be carried out on this target
├── OvertakenError        somebody else changed it since it was read
└── NotLeadingError       another controller's turn
"""

from fleet.errors import FleetwrightError


class ActuationError(FleetwrightError):
    """The world said no."""


class UnreachableError(ActuationError):
    """The target did not answer, or is not ready to."""


class PlanUnusableError(ActuationError):
    """The plan is missing, infeasible, too old, or asks for what the target does not have."""


class OvertakenError(ActuationError):
    """What the decision rests on has changed meanwhile; nothing was written."""


class NotLeadingError(ActuationError):
    """This process does not hold the lease, or it ended during the write."""
