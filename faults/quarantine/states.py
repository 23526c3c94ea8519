"""The stored state of the policy: one record per node, the circuit breaker, and recent quarantines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from faults.quarantine.life_cycle import OUT_OF_SERVICE, NodeState


class NodeRecord(NamedTuple):
    state: NodeState = NodeState.SERVING
    since_s: float = 0.0  # of the state
    diagnosis_id: str | None = None  # of the current suspicion, or of the quarantine
    suspected_s: float = 0.0  # start of the uninterrupted suspicion
    dry_run: bool = False  # the state is simulated; the node is in service
    strikes_s: tuple[float, ...] = ()  # recent quarantines of this node
    probes_passed: int = 0  # in a row
    probes_failed: int = 0
    probe_at_s: float = 0.0
    refused_by: str | None = None  # the last guardrail that refused, so that each refusal is one decision
    declined: str | None = None  # the diagnosis that an operator declined
    resolved: str | None = None  # the diagnosis of the last quarantine, after the release
    pool: str | None = None  # of a node that is out of service: kept while an evaluation omits the node
    domains: tuple[str, ...] = ()


class CircuitBreaker(NamedTuple):
    """The nodes suspected with cause, and the time at which they were too many."""

    suspected_s: Mapping[str, float] = MappingProxyType({})  # last time per node
    opened_s: float | None = None

    @property
    def open(self) -> bool:
        return self.opened_s is not None


@dataclass(frozen=True, slots=True)
class QuarantineState:
    nodes: Mapping[str, NodeRecord] = field(default_factory=lambda: MappingProxyType({}))
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    quarantined_s: tuple[float, ...] = ()  # quarantines of any node within the rate window

    def out_of_service(self) -> frozenset[str]:
        """Return the nodes that are out of service, or would be without the dry run."""
        return frozenset(name for name, record in self.nodes.items() if record.state in OUT_OF_SERVICE)


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
