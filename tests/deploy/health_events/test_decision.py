"""Decisions: the health of a component, and the invariants of a delivery over any changes and attempts."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.faults import DiagnosisSummary
from api.schemas.health_events import DELIVERY_PATTERN, Delivery, DeliveryState, HealthEvent, HealthState, OutletName
from api.schemas.quarantine import BreakerView, NodeView, QuarantineView
from deploy.health_events.decision import (
    Component,
    Health,
    delivery_id,
    event_of,
    fleet_of,
    needs_event,
    owner_refusal,
    requested,
    sent,
    waiting,
)
from deploy.health_events.outlet import ObservedNode
from faults.diagnosis import FaultClass, Scope
from faults.quarantine import NodeState, PolicyMode

AT = datetime(2026, 11, 21, tzinfo=UTC)
NODE = Component("n1")


@dataclass(frozen=True)
class AnyOutlet:
    name: OutletName = OutletName.WEBHOOK
    with_diagnoses: bool = True
    with_history: bool = True

    def takes(self, event: HealthEvent) -> bool:
        return event.node is not None

    def describe(self, event: HealthEvent) -> str:
        return event.state.value

    async def send(self, event: HealthEvent) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


def diagnosis(name: str, scope: Scope, *, isolate: bool = False, confidence: float = 0.9) -> DiagnosisSummary:
    on_switch = scope in {Scope.LEAF, Scope.UPLINK}
    return DiagnosisSummary(
        id=name,
        created_at=AT,
        created_by="monitor",
        expires_at=AT,
        job="llm",
        node=None if on_switch else "n1",
        peer="n2" if scope is Scope.LINK else None,
        fault=FaultClass.COMM_SLOW,
        scope=scope,
        switch="leaf-1" if on_switch else None,
        isolate=isolate,
        confidence=confidence,
        reason="slow",
        has_bundle=False,
    )


def policy(*out: str, dry_run: bool = False) -> QuarantineView:
    nodes = [
        NodeView(
            node=name,
            state=NodeState.QUARANTINED,
            since=AT,
            dry_run=dry_run,
            diagnosis_id="cause",
            suspected_since=None,
            refused_by=None,
            strikes=(),
            probes_passed=0,
            probes_failed=0,
            probe_at=None,
            pending_action=None,
        )
        for name in out
    ]
    return QuarantineView(
        evaluated_at=AT,
        evaluated_by="c",
        mode=PolicyMode.APPLY,
        frozen=False,
        fleet=2,
        out_of_service=() if dry_run else out,
        probe=(),
        breaker=BreakerView(opened_at=None, suspected=(), reset_requested=False),
        nodes=tuple(nodes),
        decisions=(),
    )


def test_the_policy_decides_what_is_out_and_the_strongest_diagnosis_is_the_cause() -> None:
    active = [
        diagnosis("weak", Scope.NODE, isolate=True, confidence=0.8),
        diagnosis("strong", Scope.NODE, isolate=True),
        diagnosis("certain", Scope.LINK, confidence=1.0),
        diagnosis("leaf", Scope.LEAF),
        diagnosis("data", Scope.WORKLOAD),
    ]
    leaf = {Component(None, "leaf-1"): Health(HealthState.DIAGNOSED, "leaf")}
    assert fleet_of(policy(), active).health == {NODE: Health(HealthState.DIAGNOSED, "strong")} | leaf
    assert fleet_of(policy("n1", dry_run=True), active).health[NODE].state is HealthState.DIAGNOSED
    fleet = fleet_of(policy("n1"), active)
    assert fleet.health == {NODE: Health(HealthState.OUT_OF_SERVICE, "cause")} | leaf
    assert fleet.of(Component(None, "leaf-1"), with_diagnoses=False).state is HealthState.HEALTHY


@pytest.mark.parametrize("state", HealthState)
def test_only_taking_a_node_out_needs_its_owner(state: HealthState) -> None:
    event = event_of(NODE, Health(state), None, stored_version=0, now=AT)
    owned = {"n1": ObservedNode(name="n1", owner="cordoned")}
    is_out = state is HealthState.OUT_OF_SERVICE
    assert (owner_refusal(event, owned) == "not touched: cordoned") is is_out
    assert (owner_refusal(event, None) is not None) is is_out
    assert owner_refusal(event, {}) is None


def test_the_id_of_a_delivery_is_valid_for_any_component() -> None:
    assert re.match(DELIVERY_PATTERN, delivery_id(OutletName.NVSENTINEL, Component(None, "leaf 1/é")))
    assert delivery_id(OutletName.SLURM, Component("a")) != delivery_id(OutletName.SLURM, Component(None, "a"))


HEALTHS = st.sampled_from(
    [Health(HealthState.HEALTHY), Health(HealthState.OUT_OF_SERVICE, "a")]
    + [Health(HealthState.DIAGNOSED, cause) for cause in "ab"]
)
STEPS = st.lists(st.tuples(HEALTHS, st.sampled_from(["ok", "lost", "fails", "held", "idle"])), max_size=12)


@given(steps=STEPS, with_history=st.booleans())
def test_the_receiver_ends_in_the_last_health_and_misses_no_event(
    *, steps: list[tuple[Health, str]], with_history: bool
) -> None:
    """`lost`: the event arrives and the forwarder dies before it stores the result."""
    outlet = AnyOutlet(with_history=with_history)
    stored: Delivery | None = None
    arrived: list[HealthEvent] = []  # at the receiver, which drops a repeated id
    offered: list[HealthEvent] = []  # events of which an attempt began
    version = 0
    for health, outcome in [*steps, (steps[-1][0] if steps else Health(HealthState.HEALTHY), "ok")]:
        if needs_event(stored, health):
            stored = requested(outlet, stored, event_of(NODE, health, None, stored_version=version, now=AT))
            version += 1
        while stored is not None and stored.pending and outcome != "idle":
            if outcome == "held":
                stored = waiting(stored, reason="not ours", held=True)
                break
            stored = stored.model_copy(update={"state": DeliveryState.PENDING})
            version += 1
            offered.append(stored.pending[0])
            if outcome == "fails":
                break
            if stored.pending[0] not in arrived:
                arrived.append(stored.pending[0])
            if outcome == "lost":
                break
            stored = sent(stored, result="ok")
            version += 1
    last = steps[-1][0].state if steps else HealthState.HEALTHY
    assert (arrived[-1].state if arrived else HealthState.HEALTHY) is last
    assert len({each.id for each in arrived}) == len(arrived)
    if with_history:
        assert {each.id for each in offered} == {each.id for each in arrived}
    if stored is not None:
        assert (stored.state, stored.pending) == (DeliveryState.DELIVERED, ())
