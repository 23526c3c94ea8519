"""The interface between the remediation controller and one kind of cluster, and the actions that all kinds have.

An actuator observes its cluster, decides the next actions of a case from that snapshot alone, and runs one action at a
time.  `ray_actuator` drives a Ray cluster, `kubernetes_nodes` the nodes of a Kubernetes cluster.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Generic, Protocol, TypeVar

from api.schemas.quarantine import Evaluation, ProbeReport
from api.schemas.remediation import CaseSpec, RemediationStage
from faults.quarantine import NodeState

Snapshot = TypeVar("Snapshot")


class Action(Protocol):
    @property
    def name(self) -> str:
        """Return the name of the action in cases and metrics."""


@dataclass(frozen=True, slots=True)
class Probe:
    node: str  # as the cluster names it
    name: ClassVar[str] = "probe"


@dataclass(frozen=True, slots=True)
class RunHook:
    hook: str

    @property
    def name(self) -> str:
        return f"hook-{self.hook}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """A case after one step, and the actions of that step in their order."""

    case: CaseSpec
    actions: tuple[Action, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ActionRecord:
    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    records: tuple[ActionRecord, ...] = ()  # none: the operator gave no such hook
    reading: ProbeReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseContext(Generic[Snapshot]):
    """What a step of one case depends on, beside the case."""

    case_id: str
    desired: NodeState
    snapshot: Snapshot
    now: datetime
    releasing: AbstractSet[str] = frozenset()  # nodes back in service whose cases are not closed yet


class Actuator(Protocol[Snapshot]):
    """Methods that reach the cluster raise ActuationError, and every action is idempotent."""

    @property
    def probes_at_once(self) -> int:
        """Return how many nodes are probed at once."""

    async def observe(self) -> Snapshot:
        """Observe the cluster."""

    def evaluation(
        self, snapshot: Snapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]
    ) -> Evaluation | None:
        """Return the fleet as the quarantine policy takes it; None where it has no node that could be quarantined."""

    def opened(self, case: CaseSpec, snapshot: Snapshot) -> CaseSpec:
        """Complete a new case by what the cluster shows."""

    def advance(self, case: CaseSpec, context: CaseContext[Snapshot]) -> Advance:
        """Take one step towards the desired state of the node.  Pure."""

    async def run(self, action: Action, *, case: CaseSpec, context: CaseContext[Snapshot]) -> ActionOutcome:
        """Run an action of `advance`."""

    async def observe_after(
        self, actions: Sequence[Action], *, case: CaseSpec, context: CaseContext[Snapshot]
    ) -> Snapshot | None:
        """Observe the node of the case again if these actions let the case advance at once, or return None."""


def moved(case: CaseSpec, state: NodeState, stage: RemediationStage, now: datetime, message: str) -> CaseSpec:
    """Return the case in this state and stage; `since` changes only with them."""
    since = case.since if (state, stage) == case.progress else now
    return case.model_copy(update={"state": state, "stage": stage, "since": since, "message": message[:1000]})
