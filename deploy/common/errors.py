"""Errors of actions on targets.

ActuationError
├── UnreachableError      the target does not respond or is not ready; a retry may succeed
├── PlanUnusableError     the plan must not be applied to this target
├── OvertakenError        another writer changed the target since it was read
└── NotLeadingError       another controller leads
"""

from fleet.errors import FleetwrightError


class ActuationError(FleetwrightError):
    """The target refused."""


class UnreachableError(ActuationError):
    """The target does not respond, or is not ready."""


class PlanUnusableError(ActuationError):
    """The plan is missing, infeasible, too old, or uses options that the target does not have."""


class OvertakenError(ActuationError):
    """The state behind the decision changed meanwhile; nothing was written."""


class NotLeadingError(ActuationError):
    """This process does not hold the lease, or the lease ended during the write."""
