"""The forwarder of health events: a level-triggered loop over the API's decisions, the observed nodes and the outlets.

    nodes ──> evaluation (policy, in the API), evidence ──┐
                 decisions and active diagnoses <─────────┘ ──> events ──> stored ──> sent ──> result stored

An event is stored before its first attempt.  A forwarder that dies between an attempt and the result leaves it pending,
and the next one sends the same event with the same id.  Of several forwarders only the holder of the lease acts.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from api.client import ApiError, AsyncClient, ConnectionFailedError, RateLimitedError
from api.schemas.faults import DiagnosisSummary
from api.schemas.health_events import (
    Delivery,
    DeliveryState,
    EventDiagnosis,
    HealthEvent,
    OutletName,
)
from api.schemas.leases import HEALTH_EVENTS_LEASE
from api.schemas.pages import PAGE_LIMIT_MAX
from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, NotLeadingError, UnreachableError
from deploy.common.leader_election import Leadership
from deploy.common.leader_loop import LeaderLoop, Liveness, attempt, finished
from deploy.health_events.decision import (
    Component,
    Fleet,
    Health,
    component_of,
    delivery_id,
    event_diagnosis,
    event_of,
    fleet_of,
    needs_event,
    owner_refusal,
    requested,
    sent,
    waiting,
)
from deploy.health_events.evaluation import evaluation_of, observe
from deploy.health_events.event_store import EventRecord, EventStore
from deploy.health_events.evidence import sync_evidence
from deploy.health_events.metrics import ForwarderMetrics
from deploy.health_events.outlet import NodeSource, NotOwnedError, ObservedNode, Outlet

log = structlog.get_logger()

LEASE: Final = HEALTH_EVENTS_LEASE
Nodes = Mapping[str, ObservedNode] | None  # None: a source did not respond


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderSettings:
    act: bool = False  # without it, the forwarder stores what it would send
    period_s: float = 5.0
    reconcile_timeout_s: float = 120.0
    first_retry_s: float = 2.0
    max_retry_s: float = 120.0


class FrozenError(ActuationError):
    """The fleet is frozen."""


@dataclass(slots=True, kw_only=True)
class Forwarder:
    api: AsyncClient
    outlets: Sequence[Outlet]
    leadership: Leadership
    metrics: ForwarderMetrics
    sources: Sequence[NodeSource] = ()
    evaluator: Leadership | None = None  # of the lease under which the policy is evaluated; None: another process does
    settings: ForwarderSettings = field(default_factory=ForwarderSettings)
    liveness: Liveness = field(default_factory=Liveness)
    clock: Clock = field(default_factory=Clock)
    _backoff: Backoff = field(init=False)
    _store: EventStore = field(init=False)
    _loop: LeaderLoop = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(first_s=self.settings.first_retry_s, max_s=self.settings.max_retry_s)
        self._store = EventStore(api=self.api, leadership=self.leadership)
        self.metrics.set_leader_source(lambda: self.leadership.holds)
        self._loop = LeaderLoop(
            leadership=self.leadership,
            reconcile=self._started,
            metrics=self.metrics,
            clock=self.clock,
            liveness=self.liveness,
            period_s=self.settings.period_s,
            timeout_s=self.settings.reconcile_timeout_s,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run())
            if self.evaluator is not None:
                tasks.create_task(self.evaluator.run())

    async def reconcile(self) -> bool:
        return await self._loop.once()

    async def _started(self) -> Coroutine[Any, Any, bool]:
        return finished(ok=await attempt(self._reconcile, timeout_s=self.settings.reconcile_timeout_s))

    async def _reconcile(self) -> bool:
        nodes = await observe(self.sources)
        active = [each async for each in self.api.iter_diagnoses(active=True, limit=PAGE_LIMIT_MAX)]
        if nodes is not None and self.sources:
            await sync_evidence(self.api, nodes, active, now=self.clock.now())
            await self._evaluate(nodes)
        view = await self.api.get_quarantine()
        if view.frozen:
            return nodes is not None
        records = await self._store.load()
        fleet = fleet_of(view, active)
        ok = await asyncio.gather(*(self._try_outlet(each, fleet, nodes, records) for each in self.outlets))
        deliveries = [each.delivery for each in records.values() if each.delivery is not None]
        self.metrics.set_components(Counter((each.outlet, each.state) for each in deliveries))
        return all(ok) and nodes is not None

    async def _evaluate(self, nodes: Mapping[str, ObservedNode]) -> None:
        """Run the policy on the observed nodes, unless another controller holds the lease for it."""
        if self.evaluator is None or not self.evaluator.holds or not nodes:
            return
        before = await self.api.get_quarantine()
        evaluation = evaluation_of(nodes, out=frozenset(before.out_of_service))
        result = await self.api.evaluate_quarantine(evaluation, held=self.evaluator.held)
        for each in result.decisions:
            log.info("decided", kind=each.kind.value, node=each.node, reason=each.reason, dry_run=each.dry_run)

    async def _try_outlet(self, outlet: Outlet, fleet: Fleet, nodes: Nodes, records: dict[str, EventRecord]) -> bool:
        """Deliver the events of one outlet, while it responds; the other outlets do not wait for it."""
        known = [each.delivery for each in records.values() if each.delivery is not None]
        own = {component_of(each.event) for each in known if each.outlet is outlet.name}
        ok = True
        for component in sorted(own | set(fleet.health), key=lambda each: each.name):
            key = delivery_id(outlet.name, component)
            record = records.get(key) or EventRecord(key)
            try:
                delivery = await self._wanted(outlet, component, fleet, record)
                if delivery is not None:
                    records[key] = record
                    await self._deliver(outlet, record, delivery, nodes)
            except FrozenError as error:
                log.info("frozen", reason=str(error))
                return True
            except (UnreachableError, NotLeadingError, RateLimitedError, ConnectionFailedError) as error:
                log.warning("outlet_stopped", outlet=outlet.name.value, reason=str(error))
                return False
            except (ApiError, ActuationError) as error:  # the other components do not wait for this one
                reason = str(error)
                log.warning("event_failed", outlet=outlet.name.value, component=component.name, reason=reason)
                ok = False
            except Exception:  # a defect in one outlet must not end the others
                log.exception("event_error", outlet=outlet.name.value, component=component.name)
                ok = False
        return ok

    async def _wanted(self, outlet: Outlet, component: Component, fleet: Fleet, record: EventRecord) -> Delivery | None:
        """Return the delivery with the event that the component needs; None without any event."""
        health = fleet.of(component, with_diagnoses=outlet.with_diagnoses)
        if not needs_event(record.delivery, health):
            return record.delivery
        cause = await self._diagnosis(health, fleet.diagnoses)
        event = event_of(component, health, cause, stored_version=record.version, now=self.clock.now())
        return requested(outlet, record.delivery, event) if outlet.takes(event) else record.delivery

    async def _diagnosis(self, health: Health, active: Mapping[str, DiagnosisSummary]) -> EventDiagnosis | None:
        if health.diagnosis_id is None:
            return None
        if (found := active.get(health.diagnosis_id)) is not None:
            return event_diagnosis(found)
        return event_diagnosis(await self.api.get_diagnosis(health.diagnosis_id))  # expired, and the node is still out

    async def _deliver(self, outlet: Outlet, record: EventRecord, delivery: Delivery, nodes: Nodes) -> None:
        """Store the delivery, and send its pending events in order, until one must wait."""
        while delivery.pending:
            event = delivery.pending[0]
            refusal = owner_refusal(event, nodes) if event == delivery.event else None
            if refusal is not None:
                return await self._store.save(record, waiting(delivery, reason=refusal, held=True))
            if not self.settings.act:
                text = f"would send {outlet.describe(event)}"
                return await self._store.save(record, waiting(delivery, reason=text, held=False))
            delivery = delivery.model_copy(update={"state": DeliveryState.PENDING})
            await self._store.save(record, delivery)
            now_s = self.clock.steady_s()
            if not all(self._backoff.is_due(each, now_s=now_s) for each in (outlet.name, record.id)):
                return None
            if (await self.api.get_freeze()).document.frozen:
                raise FrozenError("the fleet is frozen")
            delivery = await self._attempt(outlet, record, delivery)
            if delivery.state is DeliveryState.HELD:
                break
        return await self._store.save(record, delivery)

    async def _attempt(self, outlet: Outlet, record: EventRecord, delivery: Delivery) -> Delivery:
        """Send the oldest event and store the result.  Raise ActuationError if it must be sent again."""
        event = delivery.pending[0]
        try:
            async with self.leadership.acting():
                result = await outlet.send(event)
        except NotLeadingError:
            raise
        except NotOwnedError as error:
            self._count(outlet.name, event, "held", str(error))
            unsent = delivery.model_copy(update={"state": DeliveryState.REQUESTED})
            delivery = waiting(unsent, reason=f"not touched: {error}", held=True)
        except ActuationError as error:
            gone = isinstance(error, UnreachableError)
            self._backoff.failed(outlet.name if gone else record.id, now_s=self.clock.steady_s())
            self._count(outlet.name, event, "unreachable" if gone else "refused", str(error))
            await self._store.save(record, waiting(delivery, reason=f"will retry: {error}", held=False))
            raise
        else:
            self._backoff.succeeded(outlet.name)
            self._backoff.succeeded(record.id)
            self._count(outlet.name, event, "delivered", result)
            delivery = sent(delivery, result=result)
        await self._store.save(record, delivery)
        return delivery

    def _count(self, outlet: OutletName, event: HealthEvent, outcome: str, result: str) -> None:
        self.metrics.count_attempt(outlet, outcome)
        component, state = component_of(event).name, event.state.value
        log.info("health_event", outlet=outlet.value, component=component, state=state, outcome=outcome, result=result)
