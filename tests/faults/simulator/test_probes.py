"""Measurements of one-way probes, and their common causes with the traffic between the same two NICs."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.fabric import Floats, Traffic, Window
from faults.simulator.cluster import Shape, build
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from faults.simulator.noise import KINDS, LAB, Noise
from faults.simulator.probes import TRAINS, Probers
from faults.simulator.scenario import SCENARIOS
from faults.simulator.slow import SlowPlane

SURE = replace(LAB, probe=0.0, probe_spread=0.0, probe_met=0.0)
PORTS = 3
CLUSTER = build(Shape(ranks=1024), seed=5, probe_ports=PORTS)
SILENT = build(Shape(ranks=1024), seed=5)
FABRIC = CLUSTER.fabric
NODES = CLUSTER.shape.nodes
STILL = np.zeros((CLUSTER.shape.uplinks + 1, 2), np.float32)


def _plane(noise: Noise, *, probes: bool = True, seed: int = 1, skew_s: NDArray[np.float64] | None = None) -> SlowPlane:
    return SlowPlane(CLUSTER if probes else SILENT, noise, window_s=5.0, seed=seed, skew_s=skew_s)


def _next(plane: SlowPlane, at: int, *events: FaultEvent, path: NDArray[np.float32] = STILL, lost: int = -1) -> Window:
    reported = np.arange(NODES) != lost
    return plane.window(5.0 * at, path=path.copy(), reported=reported, events=events)


def _probed(noise: Noise, *events: FaultEvent, path: NDArray[np.float32] = STILL, lost: int = -1) -> Floats:
    probed = _next(_plane(noise), 0, *events, path=path, lost=lost).probed
    assert probed is not None
    return probed


def _lasting(kind: FaultKind, at: int, factor: float, *, to: int = -1, to_s: float = 100.0) -> FaultEvent:
    return FaultEvent(kind, at, 0.0, to_s, factor, to)


def test_probes_do_not_change_the_traffic_measurements() -> None:
    events = [_lasting(FaultKind.SLOW_TX, 40, 1.5), _lasting(FaultKind.FOREIGN, 9, 1.4, to=90)]
    with_them, without = _plane(LAB), _plane(LAB, probes=False)
    for at in range(30):
        one, other = (_next(plane, at, *events) for plane in (with_them, without))
        assert np.array_equal(one.slowdown, other.slowdown)
        assert np.array_equal(np.asarray(one.foreign), np.asarray(other.foreign))
        assert other.probed is None


def test_edges_of_one_pair_share_its_reading_and_no_two_pairs_do() -> None:
    probed = _probed(LAB)
    key = FABRIC.source * 2000 + FABRIC.target
    pairs, pair = np.unique(key, return_inverse=True)
    assert pairs.size < key.size  # rings and trees meet
    assert np.unique(probed).size == pairs.size
    assert all(np.ptp(probed[pair == at]) == 0.0 for at in np.flatnonzero(np.bincount(pair) > 1)[:50])


@pytest.mark.parametrize("tail", [4.0, 3.0])
def test_readings_have_the_given_permanent_and_per_window_spread(tail: float) -> None:
    plane = _plane(replace(SURE, probe=0.02, probe_spread=0.05, tail=tail))
    samples = np.array([_next(plane, at).probed for at in range(80)])
    assert np.median(samples, axis=0).std() == pytest.approx(0.05, rel=0.05)
    # Half of a t with 4 (3) degrees of freedom lies within 0.741 (0.765) of its scale, which is sd / sqrt(2) (3).
    half = {4.0: 0.7407 / 2.0**0.5, 3.0: 0.7649 / 3.0**0.5}[tail]
    assert np.median(abs(samples - np.median(samples, axis=0))) == pytest.approx(0.02 * half, rel=0.03)


def test_slow_nics_slow_probes_but_not_on_the_reverse_path() -> None:
    row, column = FABRIC.source == 40, FABRIC.target == 40
    for kind, touched in ((FaultKind.SLOW_TX, row), (FaultKind.SLOW_RX, column), (FaultKind.SLOW_NIC, row | column)):
        slow = _probed(SURE, _lasting(kind, 40, 1.5))
        assert slow[touched] == pytest.approx(np.log(1.5))
        assert not slow[~touched].any()


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (FaultKind.LEAF, 3),
        (FaultKind.SLOW_NODE, 7),
        (FaultKind.HICCUP, 7),
        (FaultKind.FOREIGN, 56),
        (FaultKind.CHECKPOINT, 0),
    ],
)
def test_other_traffic_on_the_nics_slows_probes_too(kind: FaultKind, at: int) -> None:
    one = _lasting(kind, at, 2.0, to=100)
    window = _next(
        _plane(replace(SURE, leak=0.0, ring=0.0, tree=0.0, small=0.0, spread=0.0, nic=0.0, leaf=0.0)), 0, one
    )
    quiet = abs(window.slowdown) < 0.05  # only the daily variation
    assert window.probed is not None
    assert (~quiet).any()
    assert window.probed[~quiet] == pytest.approx(np.log(2.0))
    assert not window.probed[quiet].any()


def test_a_slow_link_slows_the_probes_in_its_direction() -> None:
    edge = int(np.flatnonzero(FABRIC.traffic == Traffic.TREE)[0])
    a, b = int(FABRIC.source[edge]), int(FABRIC.target[edge])
    slow = _probed(SURE, _lasting(FaultKind.SLOW_LINK, a, 2.0, to=b))
    forth = (FABRIC.source == a) & (FABRIC.target == b)
    assert slow[forth] == pytest.approx(np.log(2.0))
    assert not slow[~forth].any()


def test_probes_take_separate_cables() -> None:
    away, spines = FABRIC.up >= 0, CLUSTER.shape.spines
    for ways, of_flow in ((CLUSTER.probe_up, FABRIC.up), (CLUSTER.probe_down, FABRIC.down)):
        assert (ways[:, ~away] < 0).all()
        assert (ways[:, away] // spines == of_flow[away] // spines).all()  # a cable of the same leaf
        others = [*ways, of_flow]
        for at, one in enumerate(others):
            for other in others[at + 1 :]:
                assert (one[away] == other[away]).mean() == pytest.approx(1 / spines, abs=0.02)


def test_a_probe_is_slow_only_when_all_its_ports_cross_congested_cables() -> None:
    edge = int(np.flatnonzero(FABRIC.up >= 0)[0])
    path, each = STILL.copy(), np.log(np.array([3.0, 2.0, 4.0]))
    for port in range(PORTS):
        before = _probed(SURE, path=path)
        assert before[edge] == 0.0
        ways = CLUSTER.probe_down if port == 1 else CLUSTER.probe_up
        path[ways[port, edge]] = np.maximum(path[ways[port, edge]], each[port])
    congested = np.array(
        [np.maximum(path[CLUSTER.probe_up[port], 0], path[CLUSTER.probe_down[port], 0]) for port in range(PORTS)]
    )
    assert _probed(SURE, path=path) == pytest.approx(congested.min(axis=0), abs=1e-6)
    assert _probed(SURE, path=path)[edge] == pytest.approx(np.log(2.0))


def test_probes_are_slow_for_the_same_part_of_a_window_as_traffic() -> None:
    slow = _probed(SURE, _lasting(FaultKind.SLOW_TX, 40, 2.0, to_s=2.5))
    assert slow[FABRIC.source == 40] == pytest.approx(-np.log(0.75))


def test_a_reading_needs_the_probers_of_both_ends() -> None:
    ends = (FABRIC.node[FABRIC.source] == 9) | (FABRIC.node[FABRIC.target] == 9)
    assert (np.isnan(_probed(LAB, lost=9)) == ends).all()


def test_probes_continue_while_the_job_pauses_and_end_with_the_window() -> None:
    one = _next(_plane(LAB), 0, _lasting(FaultKind.PAUSE, 0, 1.0, to_s=4.0))
    assert one.probed is not None
    assert np.nanstd(one.probed) < 0.05
    assert np.nanstd(one.slowdown) > 0.12  # a fifth of the measuring time


def test_only_probes_report_while_the_job_is_paused() -> None:
    paused = _next(_plane(LAB), 0, _lasting(FaultKind.PAUSE, 0, 1.0), _lasting(FaultKind.SLOW_TX, 40, 1.5))
    assert np.isnan(paused.slowdown).all()
    slow = np.asarray(paused.probed)[FABRIC.source == 40]
    assert slow == pytest.approx(np.log(1.5), abs=0.2)
    assert np.nanmedian(np.abs(np.asarray(paused.probed))) < 0.05


def test_during_a_hang_there_are_no_probe_readings() -> None:
    assert np.isnan(np.asarray(_next(_plane(LAB), 0, _lasting(FaultKind.HANG_CODE, 0, 1.0)).probed)).all()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_configured_share_of_pairs_is_delayed_by_the_traffic_of_the_job(name: str) -> None:
    noise = replace(KINDS[name], probe=0.0, probe_spread=0.0)
    plane = _plane(noise)
    samples = np.array([_next(plane, at).probed for at in range(100)])
    met = samples[samples > 0.0]
    sd = (noise.probe_met * samples.size) ** 0.5
    assert abs(met.size - noise.probe_met * samples.size) < 5.0 * sd  # the edges of a pair are neighbours
    assert met.mean() == pytest.approx(noise.probe_wait, abs=5.0 * noise.probe_wait / met.size**0.5)


def test_a_run_of_probes_is_the_same_for_the_same_seed() -> None:
    one, same, other = (_next(_plane(LAB, seed=seed), 0).probed for seed in (3, 3, 4))
    assert np.array_equal(np.asarray(one), np.asarray(same))
    assert not np.array_equal(np.asarray(one), np.asarray(other))


def test_every_scenario_but_two_has_probes() -> None:
    assert all(one.probe_ports > 0 for one in SCENARIOS.values())
    assert {name for name, one in SCENARIOS.items() if not one.probes} == {"no-probes", "weeks-no-probes"}
    assert replace(SCENARIOS["weeks"], description="", probes=False) == replace(
        SCENARIOS["weeks-no-probes"], description=""
    )


def test_a_reading_needs_both_probers_and_one_report() -> None:
    runs = np.arange(NODES) != 3
    arriving = ~np.isin(np.arange(NODES), (5, 6))  # the network loses nothing of these two
    agents = arriving & (np.arange(NODES) != 9)  # lost independently of probers
    probers = Probers(runs, runs & arriving)
    window = _plane(LAB).window(0.0, path=STILL.copy(), reported=agents, probers=probers)
    assert window.probed is not None
    begin, end = FABRIC.node[FABRIC.source], FABRIC.node[FABRIC.target]
    among = np.isin(begin, (5, 6)) & np.isin(end, (5, 6))
    assert among.any()
    assert np.array_equal(np.isnan(window.probed), (begin == 3) | (end == 3) | among)
    assert np.array_equal(np.isnan(window.slowdown), np.isin(begin, (5, 6, 9)))
    one_sided = np.isfinite(window.probed) & np.isnan(
        window.slowdown
    )  # the receivers report the trains of silent senders
    assert set(begin[one_sided]) == {5, 6, 9}


def test_each_window_sends_its_trains_from_the_next_ports() -> None:
    ports = TRAINS + 3
    many = build(Shape(ranks=1024), seed=5, probe_ports=ports)
    away = np.flatnonzero(many.fabric.up >= 0)
    alone = np.array([np.unique(many.probe_up[:, edge]).size == ports for edge in away])
    edge = int(away[alone][0])
    path = STILL.copy()
    path[many.probe_up[:TRAINS, edge]] = np.log(3.0)
    plane = SlowPlane(many, SURE, window_s=5.0, seed=1)
    probed = [_next(plane, at, path=path).probed for at in range(ports + 1)]
    slow = [bool(one is not None and one[edge] > 0.0) for one in probed]
    assert slow == [True, *[False] * (ports - 1), True]  # the same five after as many windows as there are ports
