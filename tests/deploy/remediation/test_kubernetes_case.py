"""Cases of Kubernetes nodes: the next step, the bodies of the writes, and the fleet as the policy takes it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.remediation import CaseAction, CaseSpec, RemediationStage
from deploy.common.errors import OvertakenError
from deploy.common.kubernetes_node_marks import QUARANTINE, QuarantineMark
from deploy.remediation.actuator import Advance, CaseContext, Probe, RunHook
from deploy.remediation.kubernetes_nodes.case_state_machine import Cordon, Evict, Uncordon, advance
from deploy.remediation.kubernetes_nodes.patches import cordon_patch, event, uncordon_patch
from deploy.remediation.kubernetes_nodes.snapshot import (
    GpuPod,
    KubernetesNode,
    NodesSnapshot,
    evaluation_of,
    gpu_node,
    gpu_pods,
    node_of,
    taint_value,
)
from faults.quarantine import NodeState
from fleet.stock.node_marks import AUTOSCALER_TAINTS, SENTINEL_LABEL

AT = datetime(2026, 1, 1, tzinfo=UTC)
CASE_ID = "v-1"
FOREIGN = {"key": "example.com/keep", "value": "1", "effect": "NoSchedule"}
CONDITION = {"type": "FleetwrightHealthy", "status": "False", "message": "diagnosis d-1"}
OUT = (CaseAction(at=AT, action="cordon"),)


def raw(name: str = "n1", **more: Any) -> dict[str, Any]:
    """A ready node with GPUs, as the API server returns it."""
    conditions = [{"type": "Ready", "status": "True"}, *more.pop("conditions", ())]
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": more.pop("labels", {})}
    metadata["annotations"] = more.pop("annotations", {})
    return {
        "metadata": metadata,
        "spec": more,
        "status": {"conditions": conditions, "capacity": {"nvidia.com/gpu": "8"}},
    }


def patched(node: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The node after a merge patch."""

    def merge(target: Any, change: Any) -> Any:
        if not isinstance(change, Mapping):
            return change
        found = dict(target) if isinstance(target, Mapping) else {}
        for key, value in change.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merge(found.get(key), value)
        return found

    merged: dict[str, Any] = merge(node, patch)
    return merged


def quarantined(name: str = "n1", **more: Any) -> dict[str, Any]:
    """A node that carries all our marks."""
    node = raw(name, conditions=[CONDITION], **more)
    return patched(node, cordon_patch(node_of(node), CASE_ID) or {})


def case(**more: Any) -> CaseSpec:
    described = {
        "node": "n1",
        "diagnosis_id": "d-1",
        "state": NodeState.QUARANTINED,
        "stage": RemediationStage.DRAINING,
    }
    return CaseSpec.model_validate(described | {"since": AT, "opened_at": AT} | more)


def step(
    of: CaseSpec,
    node: Mapping[str, Any] | None,
    *,
    desired: NodeState = NodeState.QUARANTINED,
    can_probe: bool = False,
    releasing: frozenset[str] = frozenset(),
    others: tuple[KubernetesNode, ...] = (),
    **more: Any,
) -> Advance:
    nodes = {each.name: each for each in ((node_of(node),) if node is not None else ()) + others}
    snapshot = NodesSnapshot(nodes=nodes, **({"pods": {}} | more))
    context = CaseContext(case_id=CASE_ID, desired=desired, snapshot=snapshot, now=AT, releasing=releasing)
    return advance(of, context, can_probe=can_probe, evicts=True)


def pod(name: str, *, ending: bool = False) -> GpuPod:
    return GpuPod(namespace="ml", name=name, uid=f"uid-{name}", node="n1", ending=ending)


def test_a_node_is_marked_first_and_again_until_every_mark_and_the_record_are_there() -> None:
    marked = quarantined()
    for node, of in (
        (raw(), case()),
        (marked, case()),  # died before the record
        (patched(marked, {"spec": {"unschedulable": None}}), case(actions=OUT)),
        (patched(marked, {"spec": {"taints": None}}), case(actions=OUT)),
        (patched(marked, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), case(actions=OUT)),
    ):
        after = step(of, node)
        assert (after.case.stage, after.actions) == (RemediationStage.DRAINING, (Cordon("n1"),))
    done = step(case(actions=OUT), marked)
    assert (done.case.stage, done.actions) == (RemediationStage.REPLACED, (RunHook("replace"),))


def test_pods_that_are_due_are_evicted_and_refusals_are_named() -> None:
    pods = {"n1": (pod("a"), pod("b"), pod("c", ending=True))}
    after = step(case(actions=OUT), quarantined(), pods=pods)
    assert after.actions == (Evict((pod("a"), pod("b"))),)
    assert after.case.message == "waits for the end of ml/a, ml/b, ml/c"
    blocked = {"uid-a": "a budget needs it"}
    after = step(case(actions=OUT), quarantined(), pods=pods, blocked=blocked, waiting=frozenset({"uid-a", "uid-b"}))
    assert after.actions == ()
    assert after.case.message == "eviction refused: ml/a: a budget needs it; waits for the end of ml/b, ml/c"


@pytest.mark.parametrize(
    ("desired", "can_probe", "actions", "message"),
    [
        (NodeState.QUARANTINED, True, (RunHook("replace"),), "out; probed when its cooldown is over"),
        (NodeState.CORDONED, True, (RunHook("replace"),), "out until an operator releases it"),
        (NodeState.PROBING, True, (RunHook("replace"), Probe("n1")), "is probed"),
        (NodeState.PROBING, False, (RunHook("replace"),), "no probe command; an operator can release the node"),
    ],
)
def test_a_node_without_work(desired: NodeState, *, can_probe: bool, actions: object, message: str) -> None:
    after = step(case(actions=OUT), quarantined(), desired=desired, can_probe=can_probe)
    assert (after.case.stage, after.actions, after.case.message) == (RemediationStage.REPLACED, actions, message)


def test_a_node_waits_while_another_one_of_its_groups_is_still_being_released() -> None:
    rack, pool = {"cluster/rack": "r1", "fleetwright.io/pool": "a"}, {"fleetwright.io/pool": "a"}
    for labels, waits in ((rack, True), (pool, True), ({"cluster/rack": "r2", "fleetwright.io/pool": "b"}, False)):
        other = node_of(quarantined("n2", labels=labels))
        after = step(case(), raw(labels=rack), releasing=frozenset({"n2"}), others=(other,))
        assert (after.actions == ()) == waits
    assert step(case(), raw(labels=rack), releasing=frozenset({"gone"})).actions == ()
    held = node_of(quarantined("n2", labels=rack | {SENTINEL_LABEL: "draining"}))
    assert step(case(), raw(labels=rack), releasing=frozenset({"n2"}), others=(held,)).actions == (Cordon("n1"),)


def test_a_release_removes_our_marks_before_the_case_closes() -> None:
    after = step(case(actions=OUT), quarantined(), desired=NodeState.PROBATION)
    assert (after.case.open, after.actions) == (True, (Uncordon("n1"),))
    after = step(case(actions=OUT), raw(), desired=NodeState.PROBATION)  # died before the record
    assert (after.case.open, after.actions) == (True, (Uncordon("n1"),))
    done = (*OUT, CaseAction(at=AT, action="uncordon"))
    after = step(case(actions=done), raw(), desired=NodeState.PROBATION)
    assert (after.case.open, after.actions) == (False, (RunHook("release"),))
    after = step(case(actions=OUT), None, desired=NodeState.PROBATION)  # the node has left the cluster
    assert (after.case.open, after.actions) == (False, (RunHook("release"),))


def test_a_release_waits_for_another_tool_that_relies_on_our_cordon() -> None:
    node = quarantined(labels={SENTINEL_LABEL: "draining"})
    after = step(case(actions=OUT), node, desired=NodeState.PROBATION)
    assert (after.case.open, after.actions) == (True, ())
    with pytest.raises(OvertakenError, match="NVSentinel"):
        uncordon_patch(node_of(node), CASE_ID)


def test_marks_of_another_case_are_not_removed() -> None:
    assert uncordon_patch(node_of(quarantined()), "another") is None
    after = step(case(), patched(quarantined(), {}), desired=NodeState.PROBATION)
    assert after.actions == (Uncordon("n1"),)
    foreign = quarantined(annotations={QUARANTINE: QuarantineMark(case="another", cordoned=True).text})
    assert node_of(foreign).mark == QuarantineMark(case=CASE_ID, cordoned=True)  # taken over, with its cordon


FOREIGN_TAINTS = st.lists(
    st.sampled_from([*sorted(AUTOSCALER_TAINTS), "example.com/keep", "nvidia.com/gpu"]), unique=True, max_size=3
)


@given(was_cordoned=st.booleans(), keys=FOREIGN_TAINTS, changes=st.lists(st.booleans(), max_size=6))
def test_whatever_is_repeated_no_foreign_mark_changes(
    *, was_cordoned: bool, keys: list[str], changes: list[bool]
) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    spec: dict[str, Any] = ({"taints": taints} if taints else {}) | ({"unschedulable": True} if was_cordoned else {})
    before = raw(**spec)
    node = before
    for takes_out in [*changes, False]:
        current = node_of(node)
        try:
            patch = cordon_patch(current, CASE_ID) if takes_out else uncordon_patch(current, CASE_ID)
        except OvertakenError:
            assert set(keys) & AUTOSCALER_TAINTS
            continue
        node = patched(node, patch or {})
        assert [each for each in node["spec"].get("taints", []) if each["key"] != QUARANTINE] == taints
        assert node_of(node).cordoned or not (takes_out or was_cordoned)
    if not set(keys) & AUTOSCALER_TAINTS:
        assert node == before


def test_every_patch_tests_the_resource_version() -> None:
    for patch in (cordon_patch(node_of(raw()), CASE_ID), uncordon_patch(node_of(quarantined()), CASE_ID)):
        assert patch is not None
        assert patch["metadata"]["resourceVersion"] == "7"
    assert cordon_patch(node_of(quarantined()), CASE_ID) is None
    assert uncordon_patch(node_of(raw()), CASE_ID) is None


def test_a_repeated_event_has_the_same_name() -> None:
    node = node_of(raw("n" * 253))
    names = [
        event(node, reason=reason, message="m", key=key, now=AT)["metadata"]["name"]
        for reason, key in (
            ("Quarantined", "v-1"),
            ("Quarantined", "v-1"),
            ("Quarantined", "v-2"),
            ("Uncordoned", "v-1"),
        )
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 253


def test_nodes_of_others_are_absent_and_only_idle_free_nodes_are_spares() -> None:
    found = {
        "free": raw("free"),
        "busy": raw("busy"),
        "ours": quarantined("ours"),
        "released": quarantined("released"),
        "cordoned": raw("cordoned", unschedulable=True),
        "sentinel": raw("sentinel", labels={SENTINEL_LABEL: "quarantined"}),
        "detector": raw("detector", conditions=[{"type": "KernelDeadlock", "status": "True"}]),
        "karpenter": raw("karpenter", taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
    }
    nodes = {name: node_of(each) for name, each in found.items()}
    nodes["down"] = replace(nodes["free"], name="down", ready=False)
    snapshot = NodesSnapshot(nodes=nodes, pods={"busy": (pod("a"),)})
    evaluation = evaluation_of(snapshot, out=frozenset({"ours"}), probed={})
    assert evaluation is not None
    absent = {name for name, member in evaluation.members.items() if member.absent}
    assert absent == {"released", "cordoned", "sentinel", "detector", "karpenter", "down"}
    assert evaluation.spares == {"default": 1}
    assert evaluation_of(NodesSnapshot(nodes={}, pods={}), out=frozenset(), probed={}) is None


def test_only_gpu_nodes_and_pods_that_can_move_count() -> None:
    plain = raw()
    plain["status"]["capacity"] = {"cpu": "64"}
    assert gpu_node(plain) is None
    assert gpu_node(raw()) is not None
    marked = quarantined()
    marked["status"]["capacity"] = {"nvidia.com/gpu": "0"}  # the bad node has lost its GPUs
    assert gpu_node(marked) is not None

    def described(name: str, resource: str | None, **more: Any) -> dict[str, Any]:
        resources = {"limits": {resource: "1"}} if resource else {}
        metadata = {"namespace": "ml", "name": name, "uid": f"uid-{name}"} | more.pop("metadata", {})
        return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"resources": resources}]} | more}

    static = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "dcgm"}]}
    listed = [
        described("a", "nvidia.com/gpu"),
        described("b", "nvidia.com/mig-1g.10gb"),
        described("c", None, resourceClaims=[{"name": "gpu"}]),
        described("d", "cpu"),
        described("e", "amd.com/gpu", metadata=static),
        described("f", "amd.com/gpu", metadata=daemon),
        described("g", "amd.com/gpu", nodeName="n2"),
    ]
    assert [each.name for each in gpu_pods(listed, {"n1"})["n1"]] == ["a", "b", "c"]


def test_a_case_that_is_no_label_value_has_a_digest_as_taint() -> None:
    assert taint_value("0197-ab.c_d") == "0197-ab.c_d"
    assert len(taint_value("a b")) == 32
