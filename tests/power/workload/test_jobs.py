"""Training jobs and the share of a row that trains."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.server_model import BLOOM_A100
from power.workload import training_jobs
from power.workload.jobs import PEAK, TRAINED, split_servers, trough_w


@given(st.integers(0, 60), st.integers(1, 9))
def test_jobs_use_exactly_the_given_servers(servers: int, each: int) -> None:
    sizes = [job.servers for job in training_jobs(servers=servers, job_servers=each)]
    assert sum(sizes) == servers
    assert all(size == each for size in sizes[:-1])


def test_jobs_peak_at_their_share_of_the_provisioned_power() -> None:
    assert {job.compute_w for job in training_jobs(servers=12, provisioned_w=5000.0)} == {PEAK * 5000.0}


def test_a_training_row_swings_by_about_three_eighths_of_its_provisioned_power() -> None:
    """POLCA reports 37.5 % within 2 s for the whole row."""
    jobs = training_jobs(servers=40, provisioned_w=5340.0)
    swing_w = sum(job.servers * (job.compute_w - job.trough_w) for job in jobs)
    assert swing_w / (40 * 5340.0) == pytest.approx(0.375, abs=0.06)


def test_troughs_are_shares_of_the_gpus_rating() -> None:
    assert trough_w(BLOOM_A100, 0.0) == BLOOM_A100.base_w
    assert trough_w(BLOOM_A100, 0.5) == pytest.approx(1400 + 1.32 * 8 * 200)


def test_job_types_follow_their_shares() -> None:
    names = [job.name.rpartition("-")[0] for job in training_jobs(servers=100, job_servers=1)]
    assert {one.name: names.count(one.name) for one in TRAINED} == {one.name: 10 * one.jobs_in_ten for one in TRAINED}


def test_seeds_shift_the_iterations() -> None:
    starts = [[job.start_s for job in training_jobs(servers=12, seed=seed)] for seed in (1, 1, 2)]
    assert starts[0] == starts[1]
    assert not np.allclose(starts[0], starts[2])


def test_servers_are_split_by_the_training_share() -> None:
    assert split_servers(48, 0.25) == (36, 12)
    assert split_servers(48, 0.0) == (48, 0)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(RuleError, match="training_share"):
        split_servers(48, share)


def test_jobs_of_no_servers_are_refused() -> None:
    with pytest.raises(RuleError, match="servers"):
        training_jobs(servers=4, job_servers=0)
