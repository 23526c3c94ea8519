"""Diagnoses of the public detector on small fabrics."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric, Floats, Window
from faults.localisation import LocalisationDetector, LocalisationState, LocaliserSettings
from tests.faults.localisation.fabrics import (
    NoisyWindows,
    one_switch,
    rails,
    slow_leaf,
    slow_rx,
    slow_tx,
    slow_uplink,
)

FABRIC = rails()
HEALTHY, SICK = 20, 6  # windows


def named(
    fabric: Fabric, slow: Floats, *, seed: int = 1, before: int = HEALTHY, during: int = SICK, lost: float = 0.0,
    settings: LocaliserSettings | None = None,
) -> tuple[Diagnosis, ...]:  # fmt: skip
    """All diagnoses of a run."""
    windows, localiser = NoisyWindows(fabric, seed=seed), LocalisationDetector(fabric, settings)
    state = localiser.start()
    found: dict[tuple[object, ...], Diagnosis] = {}
    for at in range(before + during):
        window = windows.window(slow if at >= before else 0.0)
        silent = windows.rng.random(fabric.node.size) < lost
        window.slowdown[silent[fabric.source]] = np.nan
        state, diagnoses = localiser.step(state, window)
        for one in diagnoses:
            found.setdefault((one.scope, one.node, one.peer, one.switch), one)
    return tuple(found.values())


@pytest.mark.parametrize("nic", [0, 21, 63])
@pytest.mark.parametrize("before", [0, HEALTHY])
def test_a_slow_sender_is_named_with_its_direction(nic: int, before: int) -> None:
    """Also when it was slow from the first second."""
    (found,) = named(FABRIC, slow_tx(FABRIC, nic, 1.5), before=before)
    assert (found.scope, found.node, found.direction) == (Scope.NODE, nic // 2, Direction.TX)
    assert found.fault is FaultClass.COMM_SLOW
    assert found.isolate
    assert found.detected_s - 10.0 * before <= 40.0


def test_diagnoses_below_the_minimum_confidence_are_not_reported() -> None:
    slow = slow_tx(FABRIC, 21, 1.25)
    (found,) = named(FABRIC, slow, before=0)
    assert 0.5 <= found.confidence < 0.9999
    later = named(FABRIC, slow, before=0, settings=LocaliserSettings(min_confidence=0.9999))
    assert all(one.confidence >= 0.9999 for one in later)


def test_a_slow_receiver_is_distinguished_from_a_slow_sender() -> None:
    (found,) = named(FABRIC, slow_rx(FABRIC, 21, 1.5))
    assert (found.node, found.direction) == (10, Direction.RX)


def test_a_nic_slow_in_both_directions_is_reported_with_both() -> None:
    slow = np.maximum(slow_tx(FABRIC, 21, 1.5), slow_rx(FABRIC, 21, 1.5))
    (found,) = named(FABRIC, slow)
    assert (found.node, found.direction) == (10, Direction.BOTH)


def test_a_slow_leaf_is_named_and_isolates_no_node() -> None:
    (found,) = named(FABRIC, slow_leaf(FABRIC, 3, 1.5))
    assert (found.scope, found.switch, found.isolate) == (Scope.LEAF, "leaf-3", False)


def test_a_congested_cable_isolates_no_node() -> None:
    busy = np.bincount(FABRIC.up[FABRIC.up >= 0]).argmax()
    assert not [one for one in named(FABRIC, slow_uplink(FABRIC, int(busy), 1.6)) if one.isolate]


def test_a_cable_that_stays_slow_becomes_a_fault() -> None:
    busy = int(np.bincount(FABRIC.up[FABRIC.up >= 0]).argmax())
    found = named(FABRIC, slow_uplink(FABRIC, busy, 1.6), during=15, settings=LocaliserSettings(lasting_s=100.0))
    assert (Scope.UPLINK, f"uplink-{busy}", False) in [(one.scope, one.switch, one.isolate) for one in found]


def test_a_slow_link_is_diagnosed_as_a_link() -> None:
    slow = np.where(np.arange(len(FABRIC)) == 30, np.log(2.0), 0.0)
    (found,) = named(FABRIC, slow)
    assert (found.scope, found.isolate, found.direction) == (Scope.LINK, False, Direction.FORWARD)
    assert (found.node, found.peer) == (FABRIC.node[FABRIC.source[30]], FABRIC.node[FABRIC.target[30]])


def test_several_simultaneous_faults_are_each_named() -> None:
    slow = np.maximum.reduce(
        [slow_tx(FABRIC, 4, 1.5), slow_rx(FABRIC, 33, 1.4), slow_tx(FABRIC, 50, 2.0), slow_leaf(FABRIC, 2, 1.3)]
    )
    found = named(FABRIC, slow)
    assert {one.node for one in found if one.isolate} == {2, 16, 25}
    assert {one.switch for one in found if one.scope is Scope.LEAF} == {"leaf-2"}


def test_lost_agents_hide_no_fault_and_cause_no_diagnosis() -> None:
    found = named(FABRIC, slow_tx(FABRIC, 21, 1.5), lost=0.05, during=10)
    assert {one.node for one in found} == {10}


def test_a_healthy_fabric_has_no_faults() -> None:
    assert not named(FABRIC, np.zeros(len(FABRIC)), before=0, during=200)


def test_one_hiccup_is_no_fault() -> None:
    assert not named(FABRIC, slow_tx(FABRIC, 21, 3.0), during=1)


@pytest.mark.parametrize("seed", [5, 6])
def test_a_hiccup_that_touches_two_windows_is_no_fault(seed: int) -> None:
    """Later windows that still remember the hiccup give no diagnosis either."""
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=seed)
    state = localiser.start()
    slow = np.maximum(slow_tx(FABRIC, 21, 2.0), slow_rx(FABRIC, 20, 2.0))
    for at in range(30):
        state, diagnoses = localiser.step(state, windows.window(slow if at in (20, 21) else 0.0))
        assert not diagnoses


def test_a_node_without_observations_is_not_isolated() -> None:
    """The detector could not observe foreign traffic on the node."""
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=7)
    state = localiser.start()
    diagnoses: tuple[Diagnosis, ...] = ()
    slow = slow_rx(FABRIC, 21, 2.0)
    for at in range(28):
        window = windows.window(slow if at >= 20 else 0.0)
        window.slowdown[FABRIC.node[FABRIC.source] == 10] = np.nan
        state, diagnoses = localiser.step(state, window)
        assert not [one for one in diagnoses if one.isolate]
    assert 10 in {one.node for one in diagnoses}


def test_a_silent_start_and_noisier_windows_give_no_diagnosis() -> None:
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=8)
    state = localiser.start()
    for at in range(40):
        window = windows.window()
        if at < 6:
            window.slowdown[:] = np.nan
        elif at in (6, 20):
            window.slowdown[:] += 0.1 * windows.rng.standard_t(4, len(FABRIC))
        state, diagnoses = localiser.step(state, window)
        assert not diagnoses


def test_foreign_traffic_is_no_fault() -> None:
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=2)
    state = localiser.start()
    diagnoses: tuple[Diagnosis, ...] = ()
    marked = (FABRIC.source == 21) | (FABRIC.target == 21)
    for at in range(30):
        window = windows.window(slow_tx(FABRIC, 21, 2.0) if at >= 20 else 0.0)
        state, diagnoses = localiser.step(state, replace(window, foreign=marked))
        assert not diagnoses


def test_a_ring_does_not_separate_a_link_from_its_ends_and_isolates_no_node() -> None:
    ring = rails(peers=1)
    found = named(ring, slow_tx(ring, 21, 2.0, leak=0.0), settings=LocaliserSettings(leak=0.0))
    assert found
    assert not [one for one in found if one.isolate]


def test_a_slow_sender_of_eight_nodes_on_one_switch_over_tcp_is_isolated() -> None:
    """Live conditions: no known leaves or uplinks, windows of 2.5 s, and acknowledgements share the slow queue."""
    fabric = one_switch()
    found = named(fabric, slow_tx(fabric, 3, 2.5, leak=1.0), settings=LocaliserSettings(leak=1.0, hiccup_s=10.0))
    assert [(one.node, one.isolate) for one in found if one.scope is Scope.NODE] == [(3, True)]


def test_a_fault_that_has_ended_is_no_longer_reported() -> None:
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=3)
    state = localiser.start()
    diagnoses: tuple[Diagnosis, ...] = ()
    for at in range(45):
        state, diagnoses = localiser.step(state, windows.window(slow_tx(FABRIC, 8, 2.0) if 20 <= at < 30 else 0.0))
        if at == 29:
            assert [one.node for one in diagnoses] == [4]
    assert not diagnoses


def test_a_step_does_not_modify_its_input_state() -> None:
    """The same state and window give the same result twice."""
    localiser, windows = LocalisationDetector(FABRIC), NoisyWindows(FABRIC, seed=4)
    state = localiser.start()
    for _ in range(22):
        state, _ = localiser.step(state, windows.window(slow_tx(FABRIC, 8, 2.0)))
    window = windows.window(slow_tx(FABRIC, 8, 2.0))
    first, second = localiser.step(state, window), localiser.step(state, window)
    assert first[1] == second[1]
    assert _same(first[0], second[0])


def _same(one: LocalisationState, other: LocalisationState) -> bool:
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = [
        (one.traffic.slow, other.traffic.slow),
        (one.traffic.links.nats, other.traffic.links.nats),
        (one.traffic.history.usual.mean, other.traffic.history.usual.mean),
    ]
    return all(np.array_equal(left, right, equal_nan=True) for left, right in pairs)


def test_windows_without_observations_give_no_diagnosis() -> None:
    localiser = LocalisationDetector(FABRIC)
    state = localiser.start()
    for at in range(5):
        nothing = Window(10.0 * at, 10.0 * at + 10.0, np.full(len(FABRIC), np.nan))
        state, diagnoses = localiser.step(state, nothing)
        assert not diagnoses
