"""Tests that the ranks read the plan that the driver writes, and that their faults begin on time."""

from itertools import islice
from pathlib import Path

import pytest

from tests.testbed.lab.job import delays
from tests.testbed.lab.workload import Inner, Plan, Workload


def test_a_written_plan_reads_back_unchanged(tmp_path: Path) -> None:
    inner = (Inner(what="delay", at_s=3.0, rank=1, ms=15.0), Inner(what="pause", at_s=4.0, until_s=5.0, ms=900.0))
    plan = Plan(
        workload=Workload(ranks=2, duration_s=9.0, inner=inner),
        addresses=("10.0.0.1", "10.0.0.2"),
        namespaces=("a", "b"),
        records="there",
    )
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan


def seconds(inner: tuple[Inner, ...], *, rank: int, now_s: float) -> list[float]:
    """Return the computation times of five steps without jitter."""
    load = Workload(ranks=4, duration_s=9.0, compute_sd_ms=0.0, inner=inner)
    return list(islice(delays(load, rank=rank, since_start_s=lambda: now_s), 5))


def test_a_delay_applies_only_to_its_rank_and_interval() -> None:
    slow = (Inner(what="delay", at_s=3.0, until_s=6.0, rank=1, ms=40.0),)
    assert seconds(slow, rank=1, now_s=4.0) == pytest.approx([0.07] * 5)
    for rank, now_s in ((0, 4.0), (1, 2.9), (1, 6.0)):
        assert seconds(slow, rank=rank, now_s=now_s) == pytest.approx([0.03] * 5)


def test_a_pause_occurs_once_on_every_rank() -> None:
    pause = (Inner(what="pause", at_s=3.0, ms=1500.0),)
    for rank in range(4):
        assert seconds(pause, rank=rank, now_s=3.5) == pytest.approx([1.53, 0.03, 0.03, 0.03, 0.03])


def test_imbalance_slows_different_ranks_in_different_steps() -> None:
    uneven = (Inner(what="imbalance", at_s=0.0, ms=20.0),)
    by_rank = [seconds(uneven, rank=rank, now_s=1.0) for rank in range(4)]
    slowest = [max(range(4), key=lambda rank: by_rank[rank][step]) for step in range(5)]
    assert len(set(slowest)) > 1
    assert min(map(min, by_rank)) >= 0.03


def test_a_hanging_rank_does_not_return() -> None:
    assert seconds((Inner(what="hang", at_s=3.0, rank=0),), rank=0, now_s=3.0)[0] > 1000.0
