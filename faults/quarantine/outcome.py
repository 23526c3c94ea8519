"""The outcome of one step: the desired state of the fleet, and the decisions for the audit."""

from enum import StrEnum
from typing import NamedTuple


class DecisionKind(StrEnum):
    """Decision about a node or about the circuit breaker."""

    SUSPECT = "suspect"
    CLEAR = "clear"
    PROPOSE = "propose"
    QUARANTINE = "quarantine"
    REFUSE = "refuse"
    PROBE = "probe"
    RELEASE = "release"
    CORDON = "cordon"
    OPEN_BREAKER = "open-breaker"
    CLOSE_BREAKER = "close-breaker"


class Decision(NamedTuple):
    """One decision, with its reason."""

    kind: DecisionKind
    node: str | None
    reason: str
    diagnosis_id: str | None = None
    dry_run: bool = False


class Outcome(NamedTuple):
    """The desired state, independent of the current one."""

    out_of_service: frozenset[str]
    probe: frozenset[str]
    decisions: tuple[Decision, ...]
