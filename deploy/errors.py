"""What goes wrong when acting on the world.

ActuationError
├── UnreachableError      the target did not answer, or said that it cannot now; the next try may succeed
├── PlanUnusableError     the plan must not be carried out on this target
└── NotLeadingError       another controller's turn
"""

from fleet.errors import FleetwrightError


class ActuationError(FleetwrightError):
    """The world said no."""


class UnreachableError(ActuationError):
    """The target did not answer, or is not ready to."""


class PlanUnusableError(ActuationError):
    """The plan is missing, infeasible, too old, or asks for what the target does not have."""


class NotLeadingError(ActuationError):
    """This process does not hold the lease, or it ended during the write."""
