"""The forwarder with the real API, a gRPC socket, a `scontrol` executable and an HTTP receiver.

Each effect happens once, also if forwarders die, and nodes of other owners stay as they are.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

import grpc

from api.schemas.health_events import DeliveryState, HealthEvent, OutletName
from api.schemas.leases import REMEDIATION_LEASE, LeaseClaim
from deploy.health_events.outlet import Outlet
from faults.quarantine import OperatorAction, PolicyMode
from tests.deploy.controller.harness import Harness
from tests.deploy.health_events.site import Site, site_of

pytestmark = pytest.mark.anyio
BAD, OTHER = "gpu-3", "gpu-4"


@pytest.fixture
async def site(harness: Harness) -> AsyncIterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="fw"))  # short: the path of a socket has at most 107 bytes
    try:
        async with site_of(harness, folder) as site:
            yield site
    finally:
        shutil.rmtree(folder)


async def test_a_quarantine_reaches_each_outlet_once_and_its_end_too(site: Site) -> None:
    diagnosis_id = await site.diagnose(BAD)
    forwarder = site.forwarder()
    assert [await site.round(forwarder) for _ in range(3)] == [True] * 3
    (fatal,) = site.connector.received
    assert (fatal.agent, fatal.nodeName, fatal.checkName) == ("fleetwright", BAD, "FleetwrightNodeFault")
    assert (fatal.isFatal, fatal.isHealthy, fatal.recommendedAction, fatal.processingStrategy) == (True, False, 5, 1)
    assert (list(fatal.errorCode), fatal.message) == (["noncomm-hang"], "gpu-3 stopped")
    assert [(each.entityType, each.entityValue) for each in fatal.entitiesImpacted] == [("Node", BAD)]
    assert dict(fatal.metadata)["diagnosisId"] == diagnosis_id
    assert fatal.generatedTimestamp.seconds == int(site.harness.clock.at.timestamp()) - 10
    assert site.slurm.updates() == ["gpu-3 drain"]
    assert site.slurm.nodes()[BAD]["reason"].startswith("fleetwright: noncomm-hang in job llm, event ")
    assert (site.receiver.states(), [right for _id, right in site.receiver.attempts]) == (
        [f"{BAD} out-of-service"],
        [True],
    )
    await site.harness.api.set_diagnosis_expiry(diagnosis_id, expires_in_s=0.0)
    await site.harness.api.request_node_action(BAD, OperatorAction.RELEASE)
    assert [await site.round(forwarder) for _ in range(3)] == [True] * 3
    assert [(each.isHealthy, each.isFatal) for each in site.connector.received] == [(False, True), (True, False)]
    assert (site.slurm.updates(), site.slurm.nodes()[BAD]["state"]) == (["gpu-3 drain", "gpu-3 undrain"], ["IDLE"])
    assert site.receiver.states() == [f"{BAD} out-of-service", f"{BAD} healthy"]
    assert {each.delivery.state for each in (await site.deliveries()).values()} == {DeliveryState.DELIVERED}


async def test_a_diagnosis_of_a_node_in_service_changes_no_node(site: Site) -> None:
    await site.diagnose(BAD, isolate=False)
    assert await site.round(site.forwarder())
    healthy, stored = site.connector.received
    assert (healthy.isHealthy, stored.isHealthy, stored.isFatal) == (True, False, False)
    assert (stored.processingStrategy, stored.recommendedAction) == (2, 0)
    assert (site.slurm.updates(), site.receiver.states()) == ([], [f"{BAD} diagnosed"])


async def test_without_act_the_events_are_stored_with_what_would_be_sent(site: Site) -> None:
    await site.diagnose(BAD)
    forwarder = site.forwarder(act=False)
    assert [await site.round(forwarder) for _ in range(2)] == [True, True]
    assert (site.connector.received, site.slurm.updates(), site.receiver.attempts) == ([], [], [])
    found = await site.deliveries()
    assert {each.delivery.state for each in found.values()} == {DeliveryState.REQUESTED}
    message = found[f"slurm {BAD}"].delivery.message
    assert message.startswith("would send scontrol update nodename=gpu-3 state=drain reason='fleetwright: noncomm-hang")


async def test_in_mode_observe_of_the_policy_no_node_is_taken_out(site: Site) -> None:
    await site.rules(PolicyMode.OBSERVE)
    await site.diagnose(BAD)
    assert await site.round(site.forwarder())
    assert (site.slurm.updates(), site.receiver.states()) == ([], [f"{BAD} diagnosed"])
    assert [each.isFatal for each in site.connector.received] == [False, False]


async def test_the_budget_of_the_policy_bounds_each_outlet(site: Site) -> None:
    """Of ten nodes one may be out; a node that somebody else has drained counts."""
    forwarder = site.forwarder()
    for node in (BAD, OTHER):
        await site.diagnose(node)
    await site.round(forwarder)
    out = {each.nodeName for each in site.connector.received if each.isFatal}
    assert (len(out), site.slurm.updates()) == (1, [f"{min(out)} drain"])
    assert [each for each in site.receiver.states() if "out" in each] == [f"{min(out)} out-of-service"]


async def test_a_node_that_slurm_has_lost_uses_up_the_budget(site: Site) -> None:
    site.slurm.change("gpu-9", state=["DOWN", "NOT_RESPONDING"], reason="Not responding")
    await site.diagnose(BAD)
    await site.round(site.forwarder())
    assert site.slurm.updates() == []
    assert not any(each.isFatal for each in site.connector.received)
    view = await site.harness.api.get_quarantine()
    assert [each.refused_by for each in view.nodes if each.node == BAD] == ["budget"]


async def test_while_the_fleet_is_frozen_nothing_is_sent(site: Site) -> None:
    forwarder = site.forwarder()
    assert await site.round(forwarder)
    await site.harness.freeze(frozen=True, reason="maintenance")
    await site.diagnose(BAD)
    assert await site.round(forwarder)
    assert (site.connector.received, site.slurm.updates(), site.receiver.attempts) == ([], [], [])
    await site.harness.freeze(frozen=False)
    assert await site.round(forwarder)
    assert (len(site.connector.received), site.slurm.updates(), len(site.receiver.events)) == (1, ["gpu-3 drain"], 1)


async def test_a_node_of_another_owner_is_neither_taken_out_nor_returned(site: Site) -> None:
    site.slurm.change(BAD, state=["IDLE", "DRAIN"], reason="bad DIMM", reason_set_by_user="root")
    await site.diagnose(BAD)
    forwarder = site.forwarder()
    assert [await site.round(forwarder) for _ in range(2)] == [True, True]
    assert (site.slurm.updates(), site.connector.received, site.receiver.attempts) == ([], [], [])
    found = await site.deliveries()
    assert {each.delivery.state for each in found.values()} == {DeliveryState.HELD}
    assert found[f"slurm {BAD}"].delivery.message == "not touched: Slurm (DRAIN+IDLE by root): bad DIMM"
    await site.harness.api.request_node_action(BAD, OperatorAction.RELEASE)
    await site.round(forwarder)
    assert (site.slurm.updates(), site.slurm.nodes()[BAD]["reason"]) == ([], "bad DIMM")


async def test_a_held_event_is_sent_once_the_other_owner_has_left(site: Site) -> None:
    site.slurm.change(BAD, state=["IDLE", "DRAIN"], reason="bad DIMM")
    await site.diagnose(BAD)
    forwarder = site.forwarder()
    await site.round(forwarder)
    site.slurm.change(BAD, state=["IDLE"], reason="")
    assert await site.round(forwarder)
    assert (site.slurm.updates(), site.receiver.states()) == (["gpu-3 drain"], [f"{BAD} out-of-service"])
    assert [each.isFatal for each in site.connector.received] == [True]


async def test_a_drain_that_another_owner_took_over_is_not_undone(site: Site) -> None:
    diagnosis_id = await site.diagnose(BAD)
    forwarder = site.forwarder()
    await site.round(forwarder)
    site.slurm.change(BAD, reason="bad DIMM", reason_set_by_user="root")
    await site.harness.api.set_diagnosis_expiry(diagnosis_id, expires_in_s=0.0)
    await site.harness.api.request_node_action(BAD, OperatorAction.RELEASE)
    await site.round(forwarder)
    assert site.slurm.updates() == ["gpu-3 drain"]
    message = (await site.deliveries())[f"slurm {BAD}"].delivery.message
    assert message == "left as it is: Slurm (DRAIN+IDLE by root): bad DIMM"


async def test_without_the_states_of_the_nodes_no_node_is_taken_out(site: Site) -> None:
    forwarder = site.forwarder()
    await site.round(forwarder)
    await site.diagnose(BAD)
    assert await site.round(forwarder)
    await site.harness.api.request_node_action(OTHER, OperatorAction.CORDON)
    site.slurm.stop()
    assert not await site.round(forwarder)
    assert (len(site.connector.received), site.slurm.updates()) == (1, ["gpu-3 drain"])


class DeathError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("outlet", range(3))
async def test_a_forwarder_killed_between_an_attempt_and_its_record_has_no_second_effect(
    site: Site, outlet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.diagnose(BAD)
    first = site.forwarder(holder="first")
    kind = type(site.outlets[outlet])
    real = kind.send

    async def send_and_die(self: Outlet, event: HealthEvent) -> str:
        await real(self, event)
        raise DeathError

    with monkeypatch.context() as during:
        during.setattr(kind, "send", send_and_die)
        assert not await site.round(first)
    before = (await site.deliveries())[f"{site.outlets[outlet].name.value} {BAD}"].delivery
    assert (before.state, before.delivered) == (DeliveryState.PENDING, None)
    await site.retire(first)
    second = site.forwarder(holder="second")
    assert [await site.round(second) for _ in range(2)] == [True, True]
    assert (site.slurm.updates(), site.receiver.states()) == (["gpu-3 drain"], [f"{BAD} out-of-service"])
    assert len({each.SerializeToString() for each in site.connector.received}) == 1
    after = (await site.deliveries())[f"{site.outlets[outlet].name.value} {BAD}"].delivery
    assert (after.state, after.event) == (DeliveryState.DELIVERED, before.event)


async def test_an_outage_of_an_outlet_loses_no_event_and_delays_no_other_outlet(site: Site) -> None:
    site.connector.refuses_with = grpc.StatusCode.UNAVAILABLE
    site.receiver.status = 503
    diagnosis_id = await site.diagnose(BAD)
    forwarder = site.forwarder()
    assert not await site.round(forwarder)
    assert site.slurm.updates() == ["gpu-3 drain"]
    assert "503" in (await site.deliveries())[f"webhook {BAD}"].delivery.message
    await site.harness.api.set_diagnosis_expiry(diagnosis_id, expires_in_s=0.0)
    await site.harness.api.request_node_action(BAD, OperatorAction.RELEASE)
    await site.round(forwarder, seconds=1.0)
    site.connector.refuses_with, site.receiver.status = None, 200
    await site.retire(forwarder)
    assert await site.round(site.forwarder(holder="second"), seconds=200.0)
    assert [each.isHealthy for each in site.connector.received] == [True]  # only the newest state
    assert site.receiver.states() == [f"{BAD} out-of-service", f"{BAD} healthy"]  # each event, in order
    assert len({each for each, _right in site.receiver.attempts}) == 2


async def test_an_event_that_begins_and_ends_within_an_outage_is_not_lost(site: Site) -> None:
    site.receiver.status = 503
    await site.diagnose(BAD, isolate=False, for_s=3600.0)
    forwarder = site.forwarder()
    await site.round(forwarder)
    brief = await site.diagnose(OTHER, isolate=False)
    await site.round(forwarder, seconds=0.5)  # in the backoff: no attempt
    await site.harness.api.set_diagnosis_expiry(brief, expires_in_s=0.0)
    await site.round(forwarder, seconds=0.5)
    site.receiver.status = 200
    assert await site.round(forwarder, seconds=10.0)
    assert site.receiver.states() == [f"{BAD} diagnosed", f"{OTHER} diagnosed", f"{OTHER} healthy"]


async def test_attempts_are_spaced_by_a_backoff(site: Site) -> None:
    site.receiver.status = 500
    await site.diagnose(BAD, for_s=3600.0)
    forwarder = site.forwarder()
    for _second in range(60):
        await site.round(forwarder, seconds=1.0)
    assert [right for _id, right in site.receiver.attempts] == [True] * 5  # at 0, 2, 6, 14 and 30 s


async def test_a_follower_sends_nothing(site: Site) -> None:
    leader, follower = site.forwarder(holder="first"), site.forwarder(holder="second")
    await site.round(leader)
    await site.diagnose(BAD)
    assert await site.round(follower)
    assert site.receiver.attempts == []


async def test_a_forwarder_leaves_the_evaluation_to_the_controller_on_ray(site: Site) -> None:
    await site.harness.api.create_lease(REMEDIATION_LEASE, LeaseClaim(holder="ray", lease_s=3600.0))
    await site.diagnose(BAD)
    assert await site.round(site.forwarder())
    assert (await site.harness.api.get_quarantine()).evaluated_at is None
    assert site.receiver.states() == [f"{BAD} diagnosed"]


async def test_metrics_count_attempts_and_components(site: Site) -> None:
    await site.diagnose(BAD)
    await site.round(site.forwarder())
    attempts = {
        (sample.labels["outlet"], sample.labels["outcome"]): sample.value
        for metric in site.registry.collect()
        for sample in metric.samples
        if sample.name == "fleetwright_health_events_attempts_total" and sample.value
    }
    assert attempts == {(name.value, "delivered"): 1.0 for name in OutletName}
    labels = {"outlet": "slurm", "state": "delivered"}
    assert site.registry.get_sample_value("fleetwright_health_events_components", labels) == 1.0
