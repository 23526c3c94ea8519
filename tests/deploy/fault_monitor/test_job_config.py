"""The leaf switches in a job file."""

import pytest

from deploy.fault_monitor.job_config import JobConfig
from faults.detector import JobFabric


def test_leaves_are_given_for_every_node_or_for_none() -> None:
    assert JobConfig(nodes=2, leaves=("leaf 1", "leaf 2")).job().fabric == JobFabric(("leaf 1", "leaf 2"))
    assert JobConfig(nodes=2).job().fabric is None


def test_leaves_of_some_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 names, one for each node, got 1"):
        JobConfig(nodes=2, leaves=("leaf 1",))
