"""A rank that waits for a core is not diagnosed as slow; a rank that computes longer is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.detector import Job
from faults.diagnosis import FaultClass, Scope
from faults.observations import Collective, Observation, Process
from faults.slow import SlowDetector
from faults.slow.workload import CpuWaits

RANKS, STEP_S, LONGER_S = 6, 0.2, 0.05


def reported(from_s: float, until_s: float, *, waits: bool) -> list[Observation]:
    """From `from_s` on, rank 4 is `LONGER_S` late, and waits for a core if `waits`; all other ranks wait for it."""
    found, now_s, step, waited_s = [], 0.0, 0, 0.0
    while now_s < until_s:
        longer_s = LONGER_S if now_s >= from_s else 0.0
        waited_s += longer_s if waits else 0.0
        ended_s = now_s + STEP_S + longer_s
        for rank in range(RANKS):
            arrived_s = now_s + 0.03 + 0.001 * ((step + rank) % 5) + longer_s * (rank == 4)
            found.append(Observation(ended_s, rank, Collective(step, "x", 1, arrived_s, ended_s, step), rank))
            of_rank_s = 0.01 * now_s + (waited_s if rank == 4 else 0.0)
            found.append(Observation(ended_s, rank, Process(7, "S", 0.0, 1, of_rank_s), rank))
        now_s, step = ended_s, step + 1
    return found


@pytest.mark.parametrize(("waits", "named"), [(False, {(FaultClass.NONCOMM_SLOW, 4, True)}), (True, set())])
def test_only_a_rank_that_computes_longer_is_named(*, waits: bool, named: set[tuple[FaultClass, int, bool]]) -> None:
    detector, found = SlowDetector(Job(RANKS, tuple(range(RANKS)))), set()
    for observation in reported(15.0, 25.0, waits=waits):
        detector.observe(observation)
        found |= {
            (v.fault, v.node, v.isolate) for v in detector.evaluate(observation.at_s) if v.scope is not Scope.WORKLOAD
        }
    assert found == named


def test_missing_kernel_counters_give_no_cpu_wait() -> None:
    cores = CpuWaits(2)
    assert cores.waited(0, 1.0, 5.0) is None
    for at_s in (1.0, 2.0, 3.0):
        cores.observe(Observation(at_s, 0, Process(1, "R", 0.0, 1, None), rank=0))
        cores.observe(Observation(at_s, 1, Process(1, "R", 0.0, 1, at_s / 2.0), rank=1))
        cores.observe(Observation(at_s, 1, Process(1, "R", 0.0, 1, 9.0), rank=2))  # no rank of this job
    assert cores.waited(0, 1.0, 3.0) is None
    assert cores.waited(1, 1.0, 3.0) is None  # no peer to compare with


def test_a_new_process_counts_from_its_own_start() -> None:
    cores = CpuWaits(3)
    for at_s, waited_s in ((1.0, 50.0), (2.0, 50.5), (3.0, 0.0), (4.5, 0.3)):
        for rank in range(3):
            cores.observe(Observation(at_s, rank, Process(1, "R", 0.0, 1, waited_s * (rank == 0)), rank=rank))
    assert cores.waited(0, 2.5, 4.5) == pytest.approx((0.3, 2.5, 4.5))


@given(st.lists(st.tuples(st.integers(-1, 3), st.floats(0, 50), st.floats(0, 1e6)), max_size=60), st.floats(0, 60))
def test_arbitrary_polls_in_any_order_give_bounded_waits(polls: list[tuple[int, float, float]], since_s: float) -> None:
    cores = CpuWaits(3)
    for rank, at_s, waited_s in polls:
        cores.observe(Observation(at_s, 0, Process(1, "R", 0.0, 1, waited_s), rank=rank))
    reported = [cores.waited(rank, since_s, 50.0) for rank in range(3)]
    assert all(each is None or abs(each.seconds) <= 1e6 for each in reported)
