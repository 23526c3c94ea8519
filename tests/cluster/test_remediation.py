"""A frozen worker on a real Ray cluster: its node goes, the run steps on a spare from its last checkpoint.

The healer is killed as soon as it has begun, so it is the next one that brings the case to its end.
"""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from api.schemas.remediation import CasePhase
from deploy.remediation.ray_nodes import RayNodes
from faults.quarantine import DecisionKind
from tests.testbed.healed_run import healed_run
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray


def test_a_frozen_workers_node_goes_alone_and_the_run_steps_on_a_spare_though_the_healer_is_killed(
    tmp_path: Path,
) -> None:
    with healed_run(tmp_path) as run:
        with run.healer("--act") as first:
            run.wait_watched(first)
            victim = next(life for life in run.lives() if life["rank"] == 1)
            before = run.lives()
            os.kill(victim["pid"], signal.SIGSTOP)
            wait_for(run.cases, what="case")
            os.kill(first.pid, signal.SIGKILL)
        with run.healer("--act"):
            cases = wait_for(run.cases, lambda cases: cases[0].case.phase is CasePhase.REPLACED, what="run on a spare")
            told = wait_for(lambda: _told(run.healer_url), lambda told: told["runs_watched"] == 1.0, what="its watch")
            assert (httpx.get(f"{run.healer_url}/healthz").json(), told["leads"]) == ({"status": "ok"}, 1.0)
            assert 0.0 <= time.time() - told["last_round_timestamp_seconds"] < PATIENCE_S
        isolation = run.client.get_quarantine()
        others = set(run.cluster.node_ids.values()) - {victim["node_id"]}
        assert _left_when_the_drained_one_has_ended(run.cluster, others) == others
        after = run.lives()[len(before) :]
    (case,) = (each.case for each in cases)
    (moved,) = case.runs
    assert (case.node, isolation.out) == (victim["node_id"], (victim["node_id"],))
    assert [each.kind for each in isolation.decisions if each.kind is DecisionKind.QUARANTINE] == [DecisionKind.QUARANTINE]
    assert {kind.detail for kind in case.acts if kind.kind == "drain"} <= {victim["node_id"]}
    assert (moved.workers, moved.resumed_attempt) == (1, moved.attempt + 1)
    assert moved.checkpoint_step is not None
    assert moved.resumed_step is not None
    assert moved.resumed_step > moved.checkpoint_step
    assert sorted(life["rank"] for life in after) == [0, 1]
    assert victim["node_id"] not in {life["node_id"] for life in after}
    assert {life["first_step"] for life in after} == {after[0]["first_step"]}
    assert after[0]["first_step"] > moved.checkpoint_step


def _told(url: str) -> dict[str, float]:
    """The figures of a healer that have no labels."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").raise_for_status().text)
    samples = (sample for family in families for sample in family.samples if not sample.labels)
    return {sample.name.removeprefix("fleetwright_healer_"): sample.value for sample in samples}


def _left_when_the_drained_one_has_ended(cluster: RayCluster, others: set[str]) -> set[str]:
    """Nodes that take work: an idle raylet that drains ends by itself."""
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        nodes = RayNodes()
        alive = wait_for(nodes.alive, lambda alive: {node.id for node in alive} <= others, what="end of the raylet")
    finally:
        ray.shutdown()
    return {node.id for node in alive if not node.draining}
