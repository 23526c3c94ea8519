"""Conditions of other systems as diagnoses: reported once, extended while they last, withdrawn, and never sent back."""

from collections.abc import Mapping

import pytest

from api.schemas.faults import DiagnosisSummary
from deploy.health_events.decision import fleet_of
from deploy.health_events.evaluation import evaluation_of, merged
from deploy.health_events.evidence import MAX_CONDITIONS, sync_evidence
from deploy.health_events.outlet import NodeCondition, ObservedNode
from tests.deploy.controller.harness import Harness

pytestmark = pytest.mark.anyio
XID = NodeCondition(source="nvsentinel", kind="SysLogsXIDError", since="2026-11-21T12:00:00Z", message="XID 79: lost")


def faulty(*conditions: NodeCondition, name: str = "gpu-3") -> dict[str, ObservedNode]:
    return {name: ObservedNode(name=name, conditions=conditions)}


async def active(harness: Harness) -> list[DiagnosisSummary]:
    return [each async for each in harness.api.iter_diagnoses(active=True)]


async def sync(harness: Harness, nodes: Mapping[str, ObservedNode]) -> list[DiagnosisSummary]:
    await sync_evidence(harness.api, nodes, await active(harness), now=harness.clock.now())
    return await active(harness)


async def test_a_condition_is_one_diagnosis_as_long_as_it_lasts(harness: Harness) -> None:
    (first,) = await sync(harness, faulty(XID))
    assert (first.node, first.isolate, first.job) == ("gpu-3", False, "node-conditions")
    assert first.reason == "nvsentinel reports SysLogsXIDError since 2026-11-21T12:00:00Z: XID 79: lost"
    for _turn in range(40):
        harness.clock.advance(10.0)
        found = await sync(harness, faulty(XID))
        assert [each.id for each in found] == [first.id]
    assert await sync(harness, faulty()) == []
    (again,) = await sync(harness, faulty(XID))
    assert again.expires_at > harness.clock.now()


async def test_a_diagnosis_of_a_condition_is_no_event_and_no_cause_of_a_quarantine(harness: Harness) -> None:
    nodes = faulty(XID)
    found = await sync(harness, nodes)
    await harness.api.evaluate_quarantine(evaluation_of(nodes, out=frozenset()))
    view = await harness.api.get_quarantine()
    assert [(each.node, each.refused_by) for each in view.nodes] == [("gpu-3", "not-justified")]
    assert fleet_of(view, found).health == {}


async def test_diagnoses_of_monitors_stay(harness: Harness) -> None:
    await sync(harness, faulty(XID))
    other = NodeCondition(source="node-problem-detector", kind="KernelDeadlock", since="")
    found = await sync(harness, faulty(other))
    assert [each.reason for each in found] == ["node-problem-detector reports KernelDeadlock: no message"]


async def test_an_outage_of_a_source_is_bounded(harness: Harness) -> None:
    nodes = merged([faulty(XID, name=f"gpu-{number:03}") for number in range(MAX_CONDITIONS + 50)])
    assert len(await sync(harness, nodes)) == MAX_CONDITIONS


def test_sources_are_merged_by_node_and_absent_nodes_count() -> None:
    first = {"a": ObservedNode(name="a", pool="train", idle=True), "b": ObservedNode(name="b", pool="train", idle=True)}
    second = {"a": ObservedNode(name="a", available=False, owner="cordoned"), "c d": ObservedNode(name="c d")}
    nodes = merged([first, second])
    assert (nodes["a"].owner, nodes["a"].pool, sorted(nodes)) == ("cordoned", "train", ["a", "b"])
    evaluation = evaluation_of(nodes, out=frozenset())
    assert {name: each.absent for name, each in evaluation.members.items()} == {"a": True, "b": False}
    assert evaluation.spares == {"train": 1}
    assert not evaluation_of(nodes, out=frozenset("a")).members["a"].absent
