"""What one step gives: what is wanted of the world, and what was decided, for the audit."""

from enum import StrEnum
from typing import NamedTuple


class Act(StrEnum):
    """What was decided of a node, or of the breaker."""

    SUSPECT = "suspect"
    CLEAR = "clear"
    PROPOSE = "propose"
    ISOLATE = "isolate"
    REFUSE = "refuse"
    PROBE = "probe"
    RELEASE = "release"
    KEEP_OUT = "keep-out"
    OPEN_BREAKER = "open-breaker"
    CLOSE_BREAKER = "close-breaker"


class Decision(NamedTuple):
    """One act, with its reason."""

    act: Act
    node: str | None
    reason: str
    accusation: str | None = None
    dry_run: bool = False


class Outcome(NamedTuple):
    """What shall be so, whatever is so now."""

    out: frozenset[str]
    probe: frozenset[str]
    decisions: tuple[Decision, ...]
