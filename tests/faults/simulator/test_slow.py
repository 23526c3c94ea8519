"""The data of a detector when agents cut windows by wrong clocks."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.fabric import Traffic
from faults.simulator.cluster import Shape, build
from faults.simulator.compute import ComputePlane
from faults.simulator.congestion import Congestion, CongestionRates
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from faults.simulator.noise import LAB
from faults.simulator.slow import Clocks, SlowPlane

SILENT = replace(
    LAB, ring=0.0, tree=0.0, small=0.0, spread=0.0, drift_per_sqrt_h=0.0, nic=0.0, leaf=0.0, diurnal=0.0, uneven=0.0,
    talks=1.0,
)  # fmt: skip
CLUSTER = build(Shape(ranks=1024), seed=5)
FABRIC = CLUSTER.fabric
NODES = CLUSTER.shape.nodes
REPORTED = np.ones(NODES, dtype=bool)
SKEW_S = np.linspace(-0.005, 0.005, NODES)


def _slowdown(*events: FaultEvent, skew_s: NDArray[np.float64] = SKEW_S) -> NDArray[np.float64]:
    plane = SlowPlane(CLUSTER, SILENT, window_s=5.0, seed=1, skew_s=skew_s)
    path = np.zeros((CLUSTER.shape.uplinks + 1, 2), np.float32)
    return plane.window(10.0, path=path, reported=REPORTED, events=events).slowdown


def _expected_slowdown(factor: float, share: float) -> float:
    return float(-np.log1p(-share * (1.0 - 1.0 / factor)))


def test_each_agent_counts_the_part_of_a_fault_inside_its_own_window() -> None:
    leaf = FaultEvent(FaultKind.LEAF, 3, 12.0, 99.0, 2.0)  # 3 s of 5, and the addition of a late clock
    slow = _slowdown(leaf)
    through = np.flatnonzero(
        ((FABRIC.leaf[FABRIC.source] == 3) | (FABRIC.leaf[FABRIC.target] == 3)) & (FABRIC.traffic == Traffic.RING)
    )
    for edge in through:
        late_s = SKEW_S[FABRIC.node[FABRIC.source[edge]]]
        assert slow[edge] == pytest.approx(_expected_slowdown(2.0, (3.0 + late_s) / 5.0), abs=2e-6)
    assert np.ptp(slow[through]) > 2e-4  # agents disagree, as they do with correct clocks
    assert np.ptp(_slowdown(leaf, skew_s=np.zeros(NODES))[through]) < 1e-6


def test_a_slow_link_is_counted_by_the_sender_clock() -> None:
    edge = int(np.flatnonzero(FABRIC.traffic == Traffic.RING)[-1])
    a, b = int(FABRIC.source[edge]), int(FABRIC.target[edge])
    skew_s = np.zeros(NODES)
    skew_s[FABRIC.node[a]] = 0.05
    link = FaultEvent(FaultKind.SLOW_LINK, a, 14.0, 99.0, 4.0, to=b)
    assert _slowdown(link, skew_s=skew_s)[edge] == pytest.approx(_expected_slowdown(4.0, 1.05 / 5.0))


def test_agents_with_late_clocks_count_the_beginning_of_the_next_window() -> None:
    slow = _slowdown(FaultEvent(FaultKind.SLOW_NODE, NODES - 1, 15.001, 99.0, 4.0))
    rows = (FABRIC.node[FABRIC.source] == NODES - 1) & (FABRIC.traffic == Traffic.RING)
    assert (slow[rows] > 0.0).all()
    early = _slowdown(FaultEvent(FaultKind.SLOW_NODE, 0, 15.001, 99.0, 4.0))
    assert early[FABRIC.node[FABRIC.source] == 0] == pytest.approx(0.0, abs=1e-12)


def test_congestion_is_counted_by_early_and_by_late_clocks() -> None:
    ways = [Congestion(500, CongestionRates(per_uplink_h=40.0), np.random.default_rng(1)) for _ in range(3)]
    right = [ways[0].advance(5.0 * at, 5.0 * at + 5.0).copy() for at in range(40)]
    both = [ways[1].advance(5.0 * at, 5.0 * at + 5.0, skew_s=0.05).copy() for at in range(40)]
    shifted = [ways[2].advance(5.0 * at + 0.05, 5.0 * at + 5.05).copy() for at in range(40)]
    assert all((one[:, 0] == one[:, 1]).all() for one in right)
    assert sum(int((one[:, 0] != one[:, 1]).sum()) for one in both) > 100
    assert np.array([one[:, 1] for one in both]) == pytest.approx(np.array([one[:, 1] for one in shifted]), abs=1e-5)


@pytest.mark.parametrize(("skew_s", "most"), [(0.005, 0.011), (0.05, 0.11)])
def test_bytes_of_a_burst_go_to_the_neighbouring_window_and_none_are_lost(skew_s: float, most: float) -> None:
    clocks = Clocks.of(SKEW_S * skew_s / 0.005, CLUSTER, np.random.default_rng(1), noise=LAB)
    counted = np.array([np.exp(-clocks.moved(5.0)) for _ in range(400)])
    assert 0.4 * most < abs(np.log(counted)).max() < most
    # The sum over all windows differs from the true one by the shift of the two outermost boundaries.
    assert counted.sum(axis=0) == pytest.approx(np.full(counted.shape[1], 400.0), abs=2 * skew_s / LAB.talks / 5.0)


def test_correct_clocks_move_nothing_between_windows() -> None:
    clocks = Clocks.of(None, CLUSTER, np.random.default_rng(1), noise=LAB)
    assert not any(clocks.moved(5.0).any() for _ in range(10))


def test_the_clock_error_of_a_gap_cancels_except_at_window_boundaries() -> None:
    quiet = replace(LAB, gap=0.0, gap_wander=0.0, pauses_per_node_h=0.0)
    late = FaultEvent(FaultKind.STRAGGLER, NODES - 1, 14.0, 99.0, 1.5)
    planes = [ComputePlane(CLUSTER, quiet, window_s=5.0, seed=1, skew_s=skew) for skew in (None, SKEW_S * 10, None)]
    even, skewed, right = (
        plane.window(10.0, reported=REPORTED, events=events).gap_s
        for plane, events in zip(planes, ([], [late], [late]), strict=True)
    )
    assert (skewed[:-1] == even[:-1]).all()
    assert skewed[-1] / even[-1] == pytest.approx(1.0 + 0.5 * 1.05 / 5.0)
    assert right[-1] / even[-1] == pytest.approx(1.0 + 0.5 * 1.0 / 5.0)
