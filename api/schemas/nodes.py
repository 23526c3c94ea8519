"""The nodes of the fleet, each with everything that the service stores about it."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.quarantine import NodeView
from api.schemas.remediation import RemediationStage
from faults.diagnosis import FaultClass, Scope
from faults.quarantine import NodeState
from fleet.documents import Frozen
from fleet.topology.elements import PowerKind

# Of the topology or of the quarantine policy.
AnyNodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$")]


class NodeDomain(Frozen):
    """A power domain that feeds the node."""

    name: str
    kind: PowerKind
    limit_w: float | None = Field(description="Its rating; with 2N, of one side.")
    budget_w: float | None = Field(description="The budget in force.")
    budget_expires_at: datetime | None


class NodePlace(Frozen):
    """Where the topology has the node, and what the machine is."""

    site: str
    region: str | None
    gpu: str | None
    gpus: int
    nominal_w: float | None = Field(description="Nameplate of the machine.")
    power: tuple[NodeDomain, ...] = Field(description="From the feed down to the rack.")
    leaves: tuple[str, ...]
    scale_up_domain: str | None


class NodeDiagnosis(Frozen):
    """An active diagnosis that names the node."""

    id: str
    job: str
    fault: FaultClass
    scope: Scope
    confidence: float
    created_at: datetime
    expires_at: datetime


class NodeCase(Frozen):
    """The open remediation case of the node."""

    id: str
    stage: RemediationStage
    since: datetime
    runs: tuple[str, ...] = Field(description="Training runs with workers on the node.")
    message: str


class FleetNode(Frozen):
    """One node."""

    name: str
    state: NodeState = Field(description="Of the quarantine policy; a node without a history is serving.")
    evaluated: bool = Field(description="Whether the last evaluation of the policy included the node.")
    place: NodePlace | None = Field(description="Null: the topology has no such node.")
    quarantine: NodeView | None = Field(description="Null: the node has no history.")
    diagnoses: tuple[NodeDiagnosis, ...] = Field(description="The newest first, of the caller's projects.")
    case: NodeCase | None
