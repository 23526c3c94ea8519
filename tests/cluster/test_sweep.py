"""Tests that a sweep on a real Ray cluster has the results of local processes."""

import math

import pytest

from deploy.common.executors import Processes, RayTasks, UnreachableClusterError
from tests.testbed.ray_cluster import RayCluster

pytestmark = pytest.mark.ray


def test_ray_tasks_return_the_results_of_processes(ray_cluster: RayCluster) -> None:
    on_ray = dict(RayTasks(address=ray_cluster.address).run(math.fabs, [-1, 2, -3]))
    assert on_ray == dict(Processes(workers=1).run(math.fabs, [-1, 2, -3]))


def test_an_unreachable_cluster_is_named() -> None:
    with pytest.raises(UnreachableClusterError, match="no Ray cluster at"):
        list(RayTasks(address="127.0.0.1:1").run(math.fabs, [1]))
