"""Tests that the node of a frozen worker is quarantined, and that its run continues on a spare from its checkpoint.

The first controller is killed after it opened the case, so the second one finishes the case.
"""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from api.schemas.remediation import RemediationStage
from deploy.remediation.ray_cluster import RayNodes
from faults.quarantine import DecisionKind
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.remediated_run import remediated_run
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray


def test_only_the_node_of_a_frozen_worker_is_quarantined_and_the_run_resumes_on_a_spare(
    tmp_path: Path,
) -> None:
    with remediated_run(tmp_path) as run:
        with run.controller("--act") as first:
            run.wait_watched(first)
            victim = next(life for life in run.lives() if life["rank"] == 1)
            before = run.lives()
            os.kill(victim["pid"], signal.SIGSTOP)
            wait_for(run.cases, what="case")
            os.kill(first.pid, signal.SIGKILL)
        with run.controller("--act"):
            cases = wait_for(
                run.cases, lambda cases: cases[0].case.stage is RemediationStage.REPLACED, what="run on a spare"
            )
            values = wait_for(
                lambda: _values(run.controller_url),
                lambda values: values["runs_monitored"] == 1.0,
                what="its monitoring",
            )
            assert (httpx.get(f"{run.controller_url}/healthz").json(), values["is_leader"]) == ({"status": "ok"}, 1.0)
            assert 0.0 <= time.time() - values["last_reconcile_timestamp_seconds"] < PATIENCE_S
        view = run.client.get_quarantine()
        others = set(run.cluster.node_ids.values()) - {victim["node_id"]}
        assert _left_when_the_drained_one_has_ended(run.cluster, others) == others
        after = run.lives()[len(before) :]
    (case,) = (each.case for each in cases)
    (moved,) = case.runs
    assert (case.node, view.out_of_service) == (victim["node_id"], (victim["node_id"],))
    assert [each.kind for each in view.decisions if each.kind is DecisionKind.QUARANTINE] == [DecisionKind.QUARANTINE]
    assert {each.detail for each in case.actions if each.action == "drain"} <= {victim["node_id"]}
    assert (moved.workers, moved.resumed_attempt) == (1, moved.attempt + 1)
    assert moved.checkpoint_step is not None
    assert moved.resumed_step is not None
    assert moved.resumed_step > moved.checkpoint_step
    assert sorted(life["rank"] for life in after) == [0, 1]
    assert victim["node_id"] not in {life["node_id"] for life in after}
    assert {life["first_step"] for life in after} == {after[0]["first_step"]}
    assert after[0]["first_step"] > moved.checkpoint_step


def _values(url: str) -> dict[str, float]:
    """Return the controller's metrics that have no labels."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").raise_for_status().text)
    samples = (sample for family in families for sample in family.samples if not sample.labels)
    return {sample.name.removeprefix("fleetwright_remediation_"): sample.value for sample in samples}


def _left_when_the_drained_one_has_ended(cluster: RayCluster, others: set[str]) -> set[str]:
    """Return the nodes that accept work: an idle draining raylet ends by itself."""
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        nodes = RayNodes()
        alive = wait_for(nodes.alive, lambda alive: {node.id for node in alive} <= others, what="end of the raylet")
    finally:
        ray.shutdown()
    return {node.id for node in alive if not node.draining}
