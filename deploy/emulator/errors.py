"""What a twin refuses, and what keeps a demonstration from its end.

TwinError
├── TooLongError     a request for which not even an empty cache has room
├── BadAskError      a request that is not one
└── StageError       the cluster that twins are put on does not come, or must not be used
"""

from fleet.errors import FleetwrightError


class TwinError(FleetwrightError):
    """The twin says no."""


class TooLongError(TwinError):
    """It would never come to its end."""


class BadAskError(TwinError):
    """Names the field and what is allowed."""


class StageError(TwinError):
    """Says what was waited for."""
