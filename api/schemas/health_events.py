"""Defines health events of nodes and switches, and their delivery to other systems: NVSentinel, Slurm, a webhook."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StringConstraints

from api.schemas.faults import DomainLabel, NodeName
from api.schemas.names import Text
from api.schemas.remediation import Note
from faults.diagnosis import FaultClass, Scope
from fleet.documents import Frozen

MAX_PENDING: Final = 100  # per component; the oldest are dropped first
DELIVERY_PATTERN: Final = r"^(nvsentinel|slurm|webhook)-[0-9a-f]{16}$"


class OutletName(StrEnum):
    """A system that receives health events."""

    NVSENTINEL = "nvsentinel"
    SLURM = "slurm"
    WEBHOOK = "webhook"


class HealthState(StrEnum):
    """Health of a component, from diagnoses and from the quarantine policy."""

    HEALTHY = "healthy"  # no active diagnosis, in service
    DIAGNOSED = "diagnosed"  # an active diagnosis, in service
    OUT_OF_SERVICE = "out-of-service"  # the quarantine policy took the node out of service


class EventDiagnosis(Frozen):
    """The diagnosis behind an event."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    job: Text
    fault: FaultClass
    scope: Scope
    peer: NodeName | None = None
    confidence: Annotated[float, Field(ge=0.0, le=1.0)]
    reason: Note


class HealthEvent(Frozen):
    """A change of the health of one node or switch."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = Field(
        description="The same in every attempt: receivers drop a repetition by it."
    )
    at: AwareDatetime
    state: HealthState
    node: NodeName | None = None
    switch: DomainLabel | None = Field(default=None, description="Of an event without a node.")
    diagnosis: EventDiagnosis | None = Field(
        default=None, description="Null: healthy, or an operator cordoned the node."
    )


class DeliveryState(StrEnum):
    """State of the newest event of a component for one outlet."""

    REQUESTED = "requested"  # not sent: the forwarder runs without --act
    HELD = "held"  # not sent: another tool or person owns the node
    PENDING = "pending"  # stored before the first attempt; an attempt may have reached the receiver
    DELIVERED = "delivered"  # accepted by the receiver


class Delivery(Frozen):
    """The newest health event of one component for one outlet, and the events that the outlet has not accepted yet."""

    outlet: OutletName
    event: HealthEvent = Field(description="The newest event.")
    state: DeliveryState
    pending: Annotated[tuple[HealthEvent, ...], Field(max_length=MAX_PENDING)] = Field(
        default=(), description="Events to send, the oldest first."
    )
    delivered: HealthEvent | None = Field(default=None, description="The last accepted event.")
    message: Note = ""


class StoredDelivery(Frozen):
    """A stored delivery."""

    id: str
    version: int = Field(ge=1)
    updated_at: datetime
    updated_by: str
    delivery: Delivery
