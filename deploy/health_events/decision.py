"""Decides which events exist and which are sent: pure functions of the API's documents and the observed nodes.

    quarantine policy   active diagnoses       health           NVSentinel    Slurm     webhook
    out of service      any                    out-of-service   fatal         drain     event
    in service          at least one           diagnosed        stored only   -         event
    in service          none                   healthy          healthy       undrain   event

Budget, rate, circuit breaker and mode are those of the quarantine policy: only its decision makes a node
`out-of-service`.  An event exists where the health of a component for an outlet differs from its newest event there.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from api.schemas.faults import DiagnosisRecord, DiagnosisSummary
from api.schemas.health_events import (
    MAX_PENDING,
    Delivery,
    DeliveryState,
    EventDiagnosis,
    HealthEvent,
    HealthState,
    OutletName,
)
from api.schemas.quarantine import QuarantineView
from deploy.health_events.outlet import ObservedNode, Outlet
from faults.diagnosis import Scope

EVIDENCE_JOB: Final = "node-conditions"  # of the diagnoses that `evidence` reports; they are never sent back
_SWITCHES: Final = frozenset((Scope.LEAF, Scope.UPLINK))


class Component(NamedTuple):
    node: str | None
    switch: str | None = None

    @property
    def name(self) -> str:
        return self.node or f"switch {self.switch}"


class Health(NamedTuple):
    state: HealthState
    diagnosis_id: str | None = None


HEALTHY: Final = Health(HealthState.HEALTHY)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The health of each component that is not healthy, and the active diagnoses by id."""

    health: Mapping[Component, Health]
    diagnoses: Mapping[str, DiagnosisSummary]

    def of(self, component: Component, *, with_diagnoses: bool) -> Health:
        found = self.health.get(component, HEALTHY)
        return found if with_diagnoses or found.state is HealthState.OUT_OF_SERVICE else HEALTHY


def fleet_of(view: QuarantineView, active: Iterable[DiagnosisSummary]) -> Fleet:
    """Combine the policy's decisions and the active diagnoses; the strongest diagnosis of a component counts."""
    known = {each.id: each for each in active if each.job != EVIDENCE_JOB and each.scope is not Scope.WORKLOAD}
    health: dict[Component, Health] = {}
    for each in sorted(known.values(), key=lambda each: (each.isolate, each.confidence, each.id)):
        component = Component(None, each.switch) if each.scope in _SWITCHES else Component(each.node)
        if component.node is not None or component.switch is not None:
            health[component] = Health(HealthState.DIAGNOSED, each.id)
    causes = {each.node: each.diagnosis_id for each in view.nodes}
    for node in view.out_of_service:
        health[Component(node)] = Health(HealthState.OUT_OF_SERVICE, causes.get(node))
    return Fleet(health, known)


def delivery_id(outlet: OutletName, component: Component) -> str:
    return f"{outlet.value}-{hashlib.sha256(component.name.encode()).hexdigest()[:16]}"


def component_of(event: HealthEvent) -> Component:
    return Component(event.node, event.switch)


def needs_event(stored: Delivery | None, health: Health) -> bool:
    """Return whether the newest event, if there is one, shows another health."""
    if stored is None:
        return health.state is not HealthState.HEALTHY
    newest = stored.event
    changed = newest.state is not health.state
    known = newest.diagnosis.id if newest.diagnosis is not None else None
    # A node that stays out of service is one event, whichever diagnosis is the cause.
    return changed or (health.state is HealthState.DIAGNOSED and known != health.diagnosis_id)


def event_of(
    component: Component, health: Health, diagnosis: EventDiagnosis | None, *, stored_version: int, now: datetime
) -> HealthEvent:
    """Make the event.  Its id is the same if a forwarder that dies here makes it again."""
    key = "\n".join((component.name, health.state.value, str(health.diagnosis_id), str(stored_version)))
    return HealthEvent(
        id=hashlib.sha256(key.encode()).hexdigest()[:32],
        at=now,
        state=health.state,
        node=component.node,
        switch=component.switch,
        diagnosis=diagnosis,
    )


def requested(outlet: Outlet, stored: Delivery | None, event: HealthEvent) -> Delivery:
    """Return the delivery with one more event.

    An outlet without history drops the older events.  So does every outlet where no attempt can have sent them.
    """
    may_be_sent = stored is not None and stored.state is DeliveryState.PENDING
    before = stored.pending if stored is not None and may_be_sent and outlet.with_history else ()
    delivered = stored.delivered if stored is not None else None
    nothing_sent = not may_be_sent and (delivered is None or delivered.state is HealthState.HEALTHY)
    if event.state is HealthState.HEALTHY and nothing_sent:
        return Delivery(outlet=outlet.name, event=event, state=DeliveryState.DELIVERED, delivered=delivered)
    return Delivery(
        outlet=outlet.name,
        event=event,
        state=DeliveryState.PENDING if may_be_sent else DeliveryState.REQUESTED,
        pending=(*before, event)[-MAX_PENDING:],
        delivered=delivered,
    )


def sent(delivery: Delivery, *, result: str) -> Delivery:
    """Return the delivery after its oldest event was accepted."""
    first, *rest = delivery.pending
    state = DeliveryState.PENDING if rest else DeliveryState.DELIVERED
    return delivery.model_copy(
        update={"state": state, "pending": tuple(rest), "delivered": first, "message": note(result)}
    )


def waiting(delivery: Delivery, *, reason: str, held: bool) -> Delivery:
    """Return the delivery that is not sent now.  One that an attempt may have sent stays pending."""
    hold = held and delivery.state is not DeliveryState.PENDING
    state = DeliveryState.HELD if hold else delivery.state
    return delivery.model_copy(update={"state": state, "message": note(reason)})


def owner_refusal(event: HealthEvent, nodes: Mapping[str, ObservedNode] | None) -> str | None:
    """Return why a node must not be taken out now: it has another owner, or its owner is unknown; else None."""
    if event.state is not HealthState.OUT_OF_SERVICE:
        return None
    if nodes is None:
        return "the states of the nodes are unknown"
    found = nodes.get(event.node or "")
    return f"not touched: {found.owner}" if found is not None and found.owner is not None else None


def note(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)[:1000]


def event_diagnosis(found: DiagnosisSummary | DiagnosisRecord) -> EventDiagnosis:
    shown = found if isinstance(found, DiagnosisSummary) else found.diagnosis
    return EventDiagnosis(
        id=found.id,
        job=found.job,
        fault=shown.fault,
        scope=shown.scope,
        peer=found.peer,
        confidence=shown.confidence,
        reason=note(shown.reason),
    )
