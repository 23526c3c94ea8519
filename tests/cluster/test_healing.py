"""A frozen worker on a real Ray cluster: its node goes, the run steps on a spare from its last checkpoint.

The healer is killed as soon as it has begun, so it is the next one that brings the case to its end.
"""

import os
import signal
from pathlib import Path

import pytest
import ray

from api.schemas.healing import CasePhase
from deploy.ray_nodes import RayNodes
from faults.isolation import Act
from tests.testbed.healed_run import healed_run
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.waiting import wait_for

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
        isolation = run.client.get_isolation()
        others = set(run.cluster.node_ids.values()) - {victim["node_id"]}
        assert _left_when_the_drained_one_has_ended(run.cluster, others) == others
        after = run.lives()[len(before) :]
    (case,) = (each.case for each in cases)
    (moved,) = case.runs
    assert (case.node, isolation.out) == (victim["node_id"], (victim["node_id"],))
    assert [each.act for each in isolation.decisions if each.act is Act.ISOLATE] == [Act.ISOLATE]
    assert {act.detail for act in case.acts if act.act == "drain"} <= {victim["node_id"]}
    assert (moved.workers, moved.resumed_attempt) == (1, moved.attempt + 1)
    assert moved.checkpoint_step is not None
    assert moved.resumed_step is not None
    assert moved.resumed_step > moved.checkpoint_step
    assert sorted(life["rank"] for life in after) == [0, 1]
    assert victim["node_id"] not in {life["node_id"] for life in after}
    assert {life["first_step"] for life in after} == {after[0]["first_step"]}
    assert after[0]["first_step"] > moved.checkpoint_step


def _left_when_the_drained_one_has_ended(cluster: RayCluster, others: set[str]) -> set[str]:
    """Nodes that take work: an idle raylet that drains ends by itself."""
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        nodes = RayNodes()
        alive = wait_for(nodes.alive, lambda alive: {node.id for node in alive} <= others, what="end of the raylet")
    finally:
        ray.shutdown()
    return {node.id for node in alive if not node.draining}
