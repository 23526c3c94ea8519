"""What a job file says of the switches."""

import pytest

from deploy.fault_monitor.job_config import JobConfig
from faults.detector import JobFabric


def test_leaves_are_named_per_node_or_not_at_all() -> None:
    assert JobConfig(nodes=2, leaves=("leaf 1", "leaf 2")).job().fabric == JobFabric(("leaf 1", "leaf 2"))
    assert JobConfig(nodes=2).job().fabric is None


def test_leaves_of_some_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 names, one for each node, got 1"):
        JobConfig(nodes=2, leaves=("leaf 1",))
