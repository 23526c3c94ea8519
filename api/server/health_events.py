"""Stores the deliveries of health events as a collection, with an audit entry for each change."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from api.schemas.health_events import Delivery, StoredDelivery
from api.schemas.leases import HEALTH_EVENTS_LEASE
from api.server.collections import AuditVerbs, Collection
from api.server.versioned import DocumentVersion
from fleet.documents import read_stored


def _detail(delivery: Delivery, _before: DocumentVersion, _after: DocumentVersion) -> Mapping[str, Any]:
    event = delivery.event
    return {
        "outlet": delivery.outlet.value,
        "component": event.node or event.switch,
        "event_id": event.id,
        "event": event.state.value,
        "diagnosis_id": event.diagnosis.id if event.diagnosis is not None else None,
        "state": delivery.state.value,
        "delivered": delivery.delivered.id if delivery.delivered is not None else None,
        "message": delivery.message,
    }


DELIVERIES = Collection(
    kind="health-events",
    path="faults/health-events",
    label="health event",
    verbs=AuditVerbs("health-event", creates="requested", replaces="updated"),
    spec=Delivery,
    shown=StoredDelivery,
    show=lambda found: StoredDelivery(
        id=found.name, version=found.version, updated_at=found.at, updated_by=found.by, delivery=found.spec
    ),
    parse=partial(read_stored, Delivery),
    detail=_detail,
    lease=HEALTH_EVENTS_LEASE,
)
