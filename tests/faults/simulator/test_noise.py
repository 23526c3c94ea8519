"""Measurements without faults, and with one fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.fabric import Traffic, Window
from faults.simulator.cluster import Shape, build
from faults.simulator.compute import ComputePlane
from faults.simulator.congestion import Congestion, CongestionRates
from faults.simulator.detectors import product_detectors
from faults.simulator.fault_schedule import FaultEvent, FaultKind, FaultSchedule
from faults.simulator.noise import KINDS, LAB, Noise
from faults.simulator.run import job
from faults.simulator.scenario import SCENARIOS
from faults.simulator.slow import SlowPlane
from faults.simulator.telemetry import Losses, Telemetry

STILL = replace(LAB, ring=0.0, tree=0.0, small=0.0, spread=0.0, drift_per_sqrt_h=0.0, nic=0.0, leaf=0.0, diurnal=0.0)
CLUSTER = build(Shape(ranks=1024), seed=5)
STILL_PATH = np.zeros((CLUSTER.shape.uplinks + 1, 2), np.float32)
FABRIC = CLUSTER.fabric


def _window(noise: Noise, *events: FaultEvent, path: NDArray[np.float32] | None = None, lost: int = -1) -> Window:
    plane = SlowPlane(CLUSTER, replace(noise, uneven=0.0), window_s=5.0, seed=1)
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    if lost >= 0:
        reported[lost] = False
    path = STILL_PATH.copy() if path is None else path
    return plane.window(0.0, path=path, reported=reported, events=events)


def _lasting(kind: FaultKind, at: int, factor: float, *, to: int = -1, to_s: float = 100.0) -> FaultEvent:
    return FaultEvent(kind, at, 0.0, to_s, factor, to)


def test_noise_has_the_measured_spread_of_each_kind_of_traffic() -> None:
    plane = SlowPlane(CLUSTER, replace(STILL, ring=0.035, tree=0.05, small=0.07), window_s=10.0, seed=2)
    still = STILL_PATH.copy()
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    samples = np.array([plane.window(10.0 * at, path=still, reported=reported).slowdown for at in range(60)])
    for kind, sd in ((Traffic.RING, 0.035), (Traffic.TREE, 0.05), (Traffic.SMALL, 0.07)):
        assert samples[:, FABRIC.traffic == kind].std() == pytest.approx(sd, rel=0.06)


@pytest.mark.parametrize(("tail", "beyond_4_sd"), [(4.0, 2.4e-3), (3.0, 3.1e-3)])
def test_tails_are_those_of_students_t(tail: float, beyond_4_sd: float) -> None:
    plane = SlowPlane(CLUSTER, replace(STILL, ring=1.0, tree=1.0, small=1.0, tail=tail), window_s=10.0, seed=2)
    still = STILL_PATH.copy()
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    samples = np.array([plane.window(10.0 * at, path=still, reported=reported).slowdown for at in range(100)])
    # P(|t| > 4 sqrt(n / (n - 2))): n = 4, 5.657: 0.0048 both sides; n = 3, 6.928: 0.0062.
    assert (samples > 4.0).mean() == pytest.approx(beyond_4_sd, rel=0.15)
    assert abs((samples > 0.0).mean() - 0.5) < 0.005


def test_a_slow_sender_slows_its_row_and_partly_its_column() -> None:
    slow = _window(STILL, _lasting(FaultKind.SLOW_TX, 40, 1.5)).slowdown
    sensitivity = np.where(FABRIC.traffic == Traffic.SMALL, STILL.small_feels, 1.0)
    row, column = FABRIC.source == 40, FABRIC.target == 40
    assert slow[row] == pytest.approx(np.log(1.5) * sensitivity[row])
    assert slow[column] == pytest.approx(STILL.leak * np.log(1.5) * sensitivity[column])
    assert not slow[~row & ~column].any()


def test_of_two_bottlenecks_on_one_path_the_narrower_counts() -> None:
    edge = int(np.flatnonzero((FABRIC.traffic == Traffic.RING) & (FABRIC.up >= 0))[0])
    path = STILL_PATH.copy()
    path[FABRIC.up[edge]] = np.log(2.0)
    slow = _window(STILL, _lasting(FaultKind.SLOW_TX, int(FABRIC.source[edge]), 1.5), path=path).slowdown
    assert slow[edge] == pytest.approx(np.log(2.0))


def test_a_slow_leaf_slows_exactly_the_edges_through_it() -> None:
    slow = _window(STILL, _lasting(FaultKind.LEAF, 3, 2.0)).slowdown
    through = (FABRIC.leaf[FABRIC.source] == 3) | (FABRIC.leaf[FABRIC.target] == 3)
    assert (slow[through] > 0.4).all()
    assert not slow[~through].any()


def test_a_slow_direction_of_a_link_partly_slows_the_other() -> None:
    edge = int(np.flatnonzero(FABRIC.traffic == Traffic.TREE)[0])
    a, b = int(FABRIC.source[edge]), int(FABRIC.target[edge])
    slow = _window(STILL, _lasting(FaultKind.SLOW_LINK, a, 2.0, to=b)).slowdown
    forth, back = (FABRIC.source == a) & (FABRIC.target == b), (FABRIC.source == b) & (FABRIC.target == a)
    assert slow[forth].max() == pytest.approx(np.log(2.0))
    assert slow[back].max() == pytest.approx(STILL.leak * np.log(2.0))
    assert not slow[~forth & ~back].any()


def test_half_rate_for_half_a_window_carries_three_quarters_of_the_bytes() -> None:
    slow = _window(STILL, _lasting(FaultKind.SLOW_NODE, 7, 2.0, to_s=2.5)).slowdown
    ring = (FABRIC.node[FABRIC.source] == 7) & (FABRIC.traffic == Traffic.RING)
    assert slow[ring] == pytest.approx(-np.log(0.75))


def test_a_lost_agent_hides_the_edges_from_its_node() -> None:
    window = _window(LAB, lost=9)
    assert (np.isnan(window.slowdown) == (FABRIC.node[FABRIC.source] == 9)).all()


def test_without_traffic_there_are_no_measurements() -> None:
    assert np.isnan(_window(LAB, _lasting(FaultKind.PAUSE, 0, 1.0)).slowdown).all()
    assert np.isfinite(_window(LAB, _lasting(FaultKind.PAUSE, 0, 1.0, to_s=2.0)).slowdown).all()


def test_foreign_traffic_is_marked_where_an_agent_can_observe_it() -> None:
    foreign = _lasting(FaultKind.FOREIGN, 40, 1.5, to=80)
    both_ends, one_end = _window(STILL, foreign).foreign, _window(STILL, foreign, lost=80 // 8).foreign
    assert both_ends is not None
    assert one_end is not None
    touches = [np.isin(FABRIC.source, nics) | np.isin(FABRIC.target, nics) for nics in ([40, 80], [40])]
    assert (both_ends == touches[0]).all()
    assert (one_end == touches[1]).all()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_of_noise_runs_and_is_the_same_for_the_same_seed(name: str) -> None:
    one, same = _window(KINDS[name]), _window(KINDS[name])
    assert np.array_equal(one.slowdown, same.slowdown, equal_nan=True)
    assert 0.05 < np.nanstd(one.slowdown) < 0.4


def test_congestion_has_the_given_rate_and_duration() -> None:
    congestion_rates = CongestionRates(per_uplink_h=2.0, mean_s=30.0)
    congestion = Congestion(500, congestion_rates, np.random.default_rng(1))
    busy = [(congestion.advance(at * 5.0, at * 5.0 + 5.0)[:-1] > 0).mean() for at in range(1440)]
    # In a window of 5 s: those with a mean duration of 30 s, and those that begin in it.
    assert np.mean(busy) == pytest.approx(2.0 * 35.0 / 3600.0, rel=0.1)
    assert np.mean(busy[:50]) == pytest.approx(2.0 * 35.0 / 3600.0, rel=0.3)  # from the first second


def test_a_hundredth_of_the_agents_is_lost_at_any_time() -> None:
    telemetry = Telemetry(2000, Losses(reports=0.0), np.random.default_rng(3))
    lost = [1.0 - telemetry.reported(at * 5.0, at * 5.0 + 5.0).mean() for at in range(2000)]
    assert np.mean(lost) == pytest.approx(0.01, rel=0.25)
    assert np.abs(telemetry.skew_s).max() <= 0.005


def test_ranks_report_compute_times_without_their_agent_unless_the_report_is_lost() -> None:
    direct, by_agents = (
        Telemetry(2000, Losses(agents=0.1, reports=0.01, direct=one), np.random.default_rng(3)) for one in (True, False)
    )
    for at in range(100):
        reported = direct.reported(at * 5.0, at * 5.0 + 5.0)
        assert np.array_equal(reported, by_agents.reported(at * 5.0, at * 5.0 + 5.0))
        assert np.array_equal(by_agents.with_records, reported)
        assert (direct.with_records | ~reported).all()
        assert (direct.run | ~reported).all()
        assert 0 < (direct.run & ~reported).sum() < 60  # it is alive, and one report is lost
        assert 0 < (~direct.with_records).sum() < 60 < (~reported).sum()  # a lost report is not sent again


def test_a_straggler_slows_one_node_and_uneven_data_slows_a_whole_replica() -> None:
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    quiet = replace(LAB, gap=0.0, gap_wander=0.0, pauses_per_node_h=0.0)
    makes = [ComputePlane(CLUSTER, quiet, window_s=5.0, seed=1) for _ in range(3)]
    usual = makes[0].window(0.0, reported=reported).gap_s
    late = makes[1].window(0.0, reported=reported, events=[_lasting(FaultKind.STRAGGLER, 5, 1.03)]).gap_s / usual
    uneven = makes[2].window(0.0, reported=reported, events=[_lasting(FaultKind.IMBALANCE, 2, 1.1)]).gap_s / usual
    assert late[5] == pytest.approx(1.03)
    assert np.delete(late, 5) == pytest.approx(1.0)
    assert uneven[CLUSTER.groups[1] == 2] == pytest.approx(1.1)
    assert np.median(uneven) == pytest.approx(1.0)


def test_steps_of_a_window_are_averaged() -> None:
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    plain = replace(LAB, gap=0.03, step_s=2.5, gap_wander=0.0, gap_spread=0.0, pauses_per_node_h=0.0)
    plane = ComputePlane(CLUSTER, plain, window_s=5.0, seed=1)
    late = np.log([plane.window(5.0 * at, reported=reported).gap_s for at in range(50)])
    middle = CLUSTER.groups[0] == 3
    assert (late[:, middle] - late[:, middle].mean(axis=1, keepdims=True)).std() == pytest.approx(0.0212, rel=0.06)


def test_a_schedule_gives_the_events_of_each_window() -> None:
    first, second = FaultEvent(FaultKind.CRASH, 0, 3.0, 8.0), FaultEvent(FaultKind.CRASH, 1, 7.0, 30.0)
    schedule = FaultSchedule([second, first])
    assert [list(schedule.during(at, at + 5.0)) for at in (0.0, 5.0, 10.0, 30.0)] == [
        [first], [first, second], [second], [],
    ]  # fmt: skip


def test_probers_are_lost_independently_of_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]] = []
    window = SlowPlane.window

    def recording_window(self: SlowPlane, from_s: float, **given: Any) -> Window:
        recorded.append((given["reported"], given["probers"].run))
        return window(self, from_s, **given)

    monkeypatch.setattr(SlowPlane, "window", recording_window)
    scenario = replace(SCENARIOS["healthy"], losses=Losses(agents=0.2, reports=0.0), background_h=0.0)
    job(scenario, ranks=1024, until_s=100.0, seed=(1, 2), detector_factory=product_detectors, clock_s=lambda: 0.0)
    reported, runs = recorded[-1]
    for lost in (~reported, ~runs, ~reported & ~runs, reported & ~runs, runs & ~reported):
        assert lost.any()
    assert abs((~reported & ~runs).mean() - (~reported).mean() * (~runs).mean()) < 0.06
