"""Defines the schemas of the quarantine policy: evaluations, their results, node states and operator actions."""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from api.schemas.faults import DomainLabel, NodeName
from faults.quarantine import DecisionKind, Member, NodeState, OperatorAction, PolicyMode, QuarantineRules
from fleet.documents import Frozen

MAX_MEMBERS = 20_000

Moment = datetime | None


class StoredRules(Frozen):
    """The rules in force, with their version; 0 is the shipped version."""

    version: int = Field(ge=0)
    rules: QuarantineRules


class MemberReport(Frozen):
    """A node as the controller observes it."""

    pool: DomainLabel = "default"
    domains: Annotated[tuple[DomainLabel, ...], Field(max_length=16)] = Field(
        default=(), description="Failure domains: rack, leaf, power domain."
    )
    absent: bool = Field(default=False, description="Takes no work for another reason.")

    @property
    def member(self) -> Member:
        """Convert the report to the policy's type."""
        return Member(self.pool, self.domains, self.absent)


class ProbeReport(Frozen):
    """Result of a requested probe."""

    ended_at: AwareDatetime
    passed: bool


class Evaluation(Frozen):
    """The observed fleet.  The service adds active diagnoses and operator actions, and runs one step of the policy."""

    members: dict[NodeName, MemberReport] = Field(min_length=1, max_length=MAX_MEMBERS)
    spares: dict[DomainLabel, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        default_factory=dict, max_length=1000, description="Free replacement nodes per pool."
    )
    probed: dict[NodeName, ProbeReport] = Field(
        default_factory=dict,
        max_length=MAX_MEMBERS,
        description="The last probe of each node.  One that ended before its request is ignored.",
    )


class DecisionView(Frozen):
    """One decision of the policy, with its reason."""

    at: datetime
    kind: DecisionKind
    node: str | None
    reason: str
    diagnosis_id: str | None = Field(default=None, description="The diagnosis that the decision rests on.")
    dry_run: bool


class EvaluationResult(Frozen):
    """The desired state of the fleet, independent of the current one."""

    at: datetime
    mode: PolicyMode
    frozen: bool = Field(description="While the fleet is frozen, the policy requests and decides nothing new.")
    out_of_service: tuple[str, ...] = Field(description="Nodes that must take no work.")
    probe: tuple[str, ...] = Field(description="Nodes to probe.")
    decisions: tuple[DecisionView, ...]


class ActionRequest(Frozen):
    """An operator's action on a node.  The next evaluation applies it."""

    action: OperatorAction


class NodeView(Frozen):
    """State and history of a node."""

    node: str
    state: NodeState
    since: datetime
    dry_run: bool = Field(description="The state is simulated; the node is in service.")
    diagnosis_id: str | None = Field(description="The diagnosis of the current suspicion, or of the quarantine.")
    suspected_since: Moment
    refused_by: str | None = Field(description="The last guardrail that refused.")
    strikes: tuple[datetime, ...]
    probes_passed: int
    probes_failed: int
    probe_at: Moment
    pending_action: OperatorAction | None = Field(description="The action that the next evaluation applies.")


class BreakerView(Frozen):
    """The circuit breaker."""

    opened_at: Moment = Field(description="Null: it is closed.")
    suspected: tuple[str, ...]
    reset_requested: bool


class QuarantineView(Frozen):
    """The whole state of the policy."""

    evaluated_at: Moment = Field(description="Null: no controller has posted an evaluation yet.")
    evaluated_by: str | None
    mode: PolicyMode
    frozen: bool
    fleet: int = Field(description="Nodes in the last evaluation.")
    out_of_service: tuple[str, ...]
    probe: tuple[str, ...]
    breaker: BreakerView
    nodes: tuple[NodeView, ...] = Field(description="Nodes with a history; all other nodes serve.")
    decisions: tuple[DecisionView, ...] = Field(description="The newest first.")
