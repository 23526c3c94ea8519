"""Links next to other causes of slow edges: congested cables, and the base rate of faults."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import NOWHERE, Floats
from faults.localisation import LocalisationDetector, LocaliserSettings
from faults.localisation import history as usual
from faults.localisation import probes as probing
from faults.localisation.entities import entities
from faults.localisation.priors import FaultRate
from tests.faults.localisation.fabrics import NoisyWindows, rails, slow_uplink

FABRIC = rails()
HEALTHY, SICK = 20, 5  # windows
CABLE = int(np.bincount(FABRIC.up[FABRIC.up != NOWHERE]).argmax())
BEHIND = np.flatnonzero(FABRIC.up == CABLE)


def links_named(slow: Floats, probed: Floats | None, *, seed: int) -> set[tuple[int | None, int | None]]:
    windows, localiser = NoisyWindows(FABRIC, seed=seed), LocalisationDetector(FABRIC)
    rng, state = np.random.default_rng(seed + 100), localiser.start()
    found: set[tuple[int | None, int | None]] = set()
    for at in range(HEALTHY + SICK):
        window = windows.window(slow if at >= HEALTHY else 0.0)
        if probed is not None:
            reported = 0.015 * rng.standard_t(4, len(FABRIC)) + (probed if at >= HEALTHY else 0.0)
            window = replace(window, probed=reported)
        state, diagnoses = localiser.step(state, window)
        found |= {(one.node, one.peer) for one in diagnoses if one.scope is Scope.LINK}
    return found


def ends(edge: int) -> tuple[int, int]:
    return int(FABRIC.node[FABRIC.source[edge]]), int(FABRIC.node[FABRIC.target[edge]])


def only(edge: int, factor: float) -> Floats:
    return np.where(np.arange(len(FABRIC)) == edge, math.log(factor), 0.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_that_is_slower_than_its_congested_cable_is_named(seed: int) -> None:
    congested, link = slow_uplink(FABRIC, CABLE, 1.4), only(int(BEHIND[0]), 4.0)
    assert links_named(np.maximum(congested, link), link, seed=seed) == {ends(int(BEHIND[0]))}


@pytest.mark.parametrize("probes", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_links_behind_a_congested_cable_are_not_named(seed: int, probes: bool) -> None:  # noqa: FBT001
    uneven = np.random.default_rng(seed).uniform(0.7, 1.3, len(FABRIC))
    congested = uneven * slow_uplink(FABRIC, CABLE, 1.6)
    assert not links_named(congested, np.zeros(len(FABRIC)) if probes else None, seed=seed)


NEAR = np.flatnonzero(FABRIC.leaf[FABRIC.source] == FABRIC.leaf[FABRIC.target])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_slow_from_the_start_is_suspected_though_its_edge_is_inherently_fast(seed: int) -> None:
    link = int(NEAR[seed])
    quicker = only(link, 1.25) - np.where(np.arange(len(FABRIC)) == link, 0.12, 0.0)
    assert evidence_nats(link, quicker, seed=seed) >= LocaliserSettings().link_bar(1, 10.0, young=True)


def evidence_nats(link: int, slow: Floats, *, seed: int) -> float:
    """Evidence after a job's first windows, with probes of a link slow by a factor of 1.25 and traffic by `slow`."""
    windows, localiser = NoisyWindows(FABRIC, seed=seed, spread=0.0), LocalisationDetector(FABRIC)
    rng, state = np.random.default_rng(seed + 100), localiser.start()
    for _ in range(SICK):
        reported = 0.015 * rng.standard_t(4, len(FABRIC)) + only(link, 1.25)
        state, _ = localiser.step(state, replace(windows.window(slow), probed=reported))
    return float(state.traffic.links.nats[localiser.traffic_fit.entities.pair[link]])


def diagnosis(node: int) -> Diagnosis:
    return Diagnosis(
        fault=FaultClass.COMM_SLOW, scope=Scope.NODE, node=node, direction=Direction.TX, onset_s=1.0, detected_s=2.0,
        isolate=False, confidence=0.9, reason="slow", evidence=("joint-fit",),
    )  # fmt: skip


def test_a_diagnosis_reported_repeatedly_counts_as_one_fault() -> None:
    rate = (
        FaultRate()
        .after_diagnoses([diagnosis(1)])
        .after_diagnoses([diagnosis(1), diagnosis(2)])
        .after_diagnoses([diagnosis(2)])
    )
    assert rate.count == 2.0
    assert rate.after_diagnoses([diagnosis(1), diagnosis(2)]).count == 3.0  # reported again after it was withdrawn


def test_the_fault_rate_decays_after_a_burst() -> None:
    rate = FaultRate()
    for node in range(8):
        rate = rate.after_diagnoses([diagnosis(node)])
    after_burst = rate.after(125.0).every_h(2.4)
    for _ in range(3 * 24):
        rate = rate.after(3600.0)
    assert after_burst < 0.3
    assert 10.0 < rate.every_h(2.4) < 24.0  # no fault for three days, and the rate remembers one


@given(st.integers(0, 50), st.floats(0.0, 1e6))
def test_more_faults_lower_the_price_of_the_next_fault(count: int, seconds: float) -> None:
    settings, rate = LocaliserSettings(), FaultRate(count=float(count)).after(seconds)
    more = rate.after_diagnoses([diagnosis(1)])
    prices = [settings.price(1000, 5.0, every_h=of.every_h(settings.fault_every_h)) for of in (rate, more)]
    assert prices[1] <= prices[0]
    assert settings.price(1000, 5.0) == settings.price(1000, 5.0, every_h=FaultRate().every_h(settings.fault_every_h))


def test_congestion_costs_more_over_several_paths_and_most_within_a_leaf() -> None:
    all_of = entities(FABRIC, LocaliserSettings())
    pairs = all_of.pairs.back.size
    counts = probing.CongestionCounts(0.0, 0.0, 0.0, 0.0)
    nats = [counts.nats(probing.ways(FABRIC, all_of.pair, pairs, ports=ports).first_away) for ports in (1, 2, 4)]
    assert [away for _, away in nats] == sorted(away for _, away in nats)
    assert all(near > away for near, away in nats)
    unknown = replace(FABRIC, up=np.full(len(FABRIC), NOWHERE), down=np.full(len(FABRIC), NOWHERE))
    assert probing.ways(unknown, all_of.pair, pairs, ports=4).first_away == probing.AWAY_FIRST


def test_the_prior_of_port_hashing_holds_until_one_congestion_run_refutes_it() -> None:
    most = probing.AWAY_MAX
    calm, after_one_run = (probing.CongestionCounts(0.0, 0.0, count, 4e7).nats(most)[1] for count in (0.0, 1.0))
    assert calm == pytest.approx(np.log((4e7 + most) / probing.SHORT))
    assert after_one_run < np.log(1e8)
    guesses = [probing.CongestionCounts(0.0, 0.0, 200.0, 4e7).nats(first)[1] for first in (probing.AWAY_FIRST, most)]
    assert guesses[0] == pytest.approx(guesses[1], abs=0.01)  # the counts dominate the prior


def test_the_prior_of_the_spread_has_no_weight_with_many_observed_edges() -> None:
    rng, settings = np.random.default_rng(3), LocaliserSettings(spread=0.05)
    spreads = []
    for edges in (4000, 400):
        usual_of = 0.01 * rng.standard_t(4, edges)
        history, of_kind = usual.start(edges, settings, kinds=1), usual.samples(np.zeros(edges, np.int64), 1)
        for _ in range(3):
            measured = usual_of + 0.005 * rng.standard_t(4, edges)
            history, level, _ = usual.measures(history, measured, None, of_kind, settings)
            history = replace(history, before=(measured - level[0]).astype(np.float32))
        spreads.append(float(history.spread[0]))
    assert spreads[0] == pytest.approx(0.01, rel=0.15)
    assert spreads[1] > 0.02
