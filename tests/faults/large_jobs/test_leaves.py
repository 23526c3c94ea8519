"""The leaves of a job come from the run.json of a recording or from a bundle."""

import json

import pytest

from faults.bundle import read_bundle, write_bundle
from faults.detector import Job, JobFabric
from faults.large_jobs.detector import roles_of
from faults.monitor import MonitorSettings
from faults.readers.run import parse_run
from fleet.documents import RuleError

LEAVES = ["a", "a", "b"]


def test_a_recording_gives_the_leaves() -> None:
    assert parse_run(json.dumps({"n": 3, "leaves": LEAVES}).encode()).job.fabric == JobFabric(tuple(LEAVES))
    assert parse_run(b'{"n": 3}').job.fabric is None


@pytest.mark.parametrize("leaves", [["a", "b"], ["a", "b", 1], ["a", "b", ""], "abc", {}, ["a", "b", "c" * 257]])
def test_a_recording_with_invalid_leaves_is_refused(leaves: object) -> None:
    with pytest.raises(RuleError, match="leaves"):
        parse_run(json.dumps({"n": 3, "leaves": leaves}).encode())


@pytest.mark.parametrize("fabric", [None, JobFabric(tuple(LEAVES))])
def test_a_bundle_keeps_the_leaves(fabric: JobFabric | None) -> None:
    job = Job(3, (0, 1, 2), fabric=fabric)
    assert read_bundle(write_bundle(job, MonitorSettings(), (), version="0")).job == job


def test_groups_divide_a_job_into_stages_and_replicas() -> None:
    replicas = tuple((at, at + 4, at + 8) for at in range(4))
    stages = tuple(tuple(range(4 * at, 4 * at + 4)) for at in range(3))
    found = roles_of(Job(12, tuple(range(12)), groups=(*replicas, *stages, (0, 1), tuple(range(12)))))
    assert found.stage.tolist() == [at // 4 for at in range(12)]
    assert found.replica.tolist() == [at % 4 for at in range(12)]


def test_groups_that_omit_nodes_give_no_stages_or_replicas() -> None:
    found = roles_of(Job(9, tuple(range(9)), groups=((0, 1, 2), (3, 4, 5))))
    assert set(found.stage.tolist()) == {0}
    assert len(set(found.replica.tolist())) == 9
