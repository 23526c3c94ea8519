"""Probes confirm or rule out a slow node and give its direction; without probes nothing changes."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.diagnosis import Diagnosis, Direction, Scope
from faults.fabric import Fabric, Floats
from faults.localisation import LocalisationDetector, LocaliserSettings
from faults.localisation.chance_model import hashed_nats
from faults.localisation.evidence import outlasts, recent_hits, run_of_hits
from faults.localisation.probe_confirmation import windows_slow
from tests.faults.localisation.fabrics import NoisyWindows, rails, slow_leaf, slow_rx, slow_tx

FABRIC = rails()
HEALTHY, SICK = 20, 6  # windows
PROBE_NOISE = 0.015


def one_way(fabric: Fabric, *, out: int | None = None, into: int | None = None, factor: float = 1.5) -> Floats:
    """The slowdown that probes measure at a slow NIC; they have no return path."""
    slow = np.zeros(len(fabric))
    if out is not None:
        slow[fabric.source == out] = np.log(factor)
    if into is not None:
        slow[fabric.target == into] = np.log(factor)
    return slow


def named(
    slow: Floats, probed: Floats | None, *, fabric: Fabric = FABRIC, seed: int = 1, during: int = SICK,
    settings: LocaliserSettings | None = None, noise: float = 0.03,
) -> list[Diagnosis]:  # fmt: skip
    """All diagnoses of a run; `probed` None: no probes, NaN: none observed."""
    noisy, localiser = NoisyWindows(fabric, seed=seed, noise=noise), LocalisationDetector(fabric, settings)
    rng, state = np.random.default_rng(seed + 100), localiser.start()
    usual = 0.02 * rng.standard_normal(len(fabric))
    found: dict[tuple[object, ...], Diagnosis] = {}
    for at in range(HEALTHY + during):
        sick = at >= HEALTHY
        window = noisy.window(slow if sick else 0.0)
        if probed is not None:
            reported = usual + PROBE_NOISE * rng.standard_t(4, len(fabric)) + (probed if sick else 0.0 * probed)
            window = replace(window, probed=reported)
        state, diagnoses = localiser.step(state, window)
        for one in diagnoses:
            found[one.scope, one.node, one.peer, one.switch] = one
    return list(found.values())


def test_missing_probes_change_nothing() -> None:
    slow = slow_tx(FABRIC, 21, 1.5)
    assert named(slow, np.full(len(FABRIC), np.nan)) == named(slow, None)


def test_agreeing_probes_isolate_the_node() -> None:
    (found,) = named(slow_tx(FABRIC, 21, 1.5), one_way(FABRIC, out=21))
    assert (found.scope, found.node, found.isolate, found.direction) == (Scope.NODE, 10, True, Direction.TX)


@pytest.mark.parametrize(("pattern", "isolated"), [("sick well sick", False), ("sick sick sick", True)])
def test_only_a_lasting_slowdown_isolates_when_probes_agree(pattern: str, *, isolated: bool) -> None:
    noisy, localiser = NoisyWindows(FABRIC, seed=1), LocalisationDetector(FABRIC)
    rng, state, found = np.random.default_rng(101), localiser.start(), list[Diagnosis]()
    slow, probed = slow_tx(FABRIC, 21, 1.5), one_way(FABRIC, out=21)
    for condition in [*["well"] * HEALTHY, *pattern.split(), "well"]:
        sick = float(condition == "sick")
        reported = sick * probed + PROBE_NOISE * rng.standard_t(4, len(FABRIC))
        state, diagnoses = localiser.step(state, replace(noisy.window(sick * slow), probed=reported))
        found += diagnoses
    assert any(one.isolate for one in found) is isolated


@pytest.mark.parametrize("nic", [8, 21, 40])
def test_normal_probes_rule_out_a_slow_node(nic: int) -> None:
    """For example, the acknowledgements of all its edges cross one congested cable."""
    assert not [one for one in named(slow_rx(FABRIC, nic, 1.3), np.zeros(len(FABRIC))) if one.scope is Scope.NODE]


@pytest.mark.parametrize(
    ("slow_direction", "reported"), [("out", Direction.TX), ("into", Direction.RX), ("both", Direction.BOTH)]
)
def test_probes_give_the_direction_that_acknowledgements_hide(slow_direction: str, reported: Direction) -> None:
    slow = np.maximum(slow_tx(FABRIC, 21, 1.5, leak=1.0), slow_rx(FABRIC, 21, 1.5, leak=1.0))
    probed = one_way(FABRIC, out=21 if slow_direction != "into" else None, into=21 if slow_direction != "out" else None)
    found = [one for one in named(slow, probed, settings=LocaliserSettings(leak=1.0)) if one.scope is Scope.NODE]
    assert [(one.node, one.direction, one.isolate) for one in found] == [(10, reported, True)]


def test_a_slow_leaf_with_slow_probes_isolates_no_node() -> None:
    slow = slow_leaf(FABRIC, 3, 1.5)
    found = named(slow, slow)
    assert (Scope.LEAF, "leaf-3") in [(one.scope, one.switch) for one in found]
    assert not [one for one in found if one.isolate]


def test_background_congestion_on_one_probe_gives_no_diagnosis() -> None:
    edge = int(np.flatnonzero(FABRIC.up >= 0)[5])
    probed = np.where(np.arange(len(FABRIC)) == edge, np.log(1.5), 0.0)
    assert not named(np.zeros(len(FABRIC)), probed, during=30)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_probe_confirms_a_link_that_traffic_alone_does_not_name(seed: int) -> None:
    slow = np.where(np.arange(len(FABRIC)) == 30, np.log(1.25), 0.0)
    alone = named(slow, None, noise=0.06, seed=seed)
    (found,) = named(slow, slow, noise=0.06, seed=seed)
    assert not alone
    assert (found.scope, found.isolate) == (Scope.LINK, False)
    assert (found.node, found.peer) == (FABRIC.node[FABRIC.source[30]], FABRIC.node[FABRIC.target[30]])


@given(st.integers(0, 4), st.integers(1, 5), st.floats(0.1, 8.0))
def test_the_price_of_hashed_paths_is_the_mean_over_all_hashings(flows: int, count: int, price: float) -> None:
    every = list(itertools.product(range(count), repeat=flows))
    chance = math.fsum(math.exp(-price * len(set(hashed))) for hashed in every) / len(every)
    assert hashed_nats(flows, count, price) == pytest.approx(-math.log(chance), abs=1e-9)


@given(st.floats(0.0, 1.0), st.floats(0.05, 1.5))
def test_a_hiccup_of_two_windows_counts_as_two_whatever_its_start(begin: float, slow: float) -> None:
    readings = [np.full(4, share * slow) for share in (1.0 - begin, 1.0, begin)]
    assert windows_slow(readings) == pytest.approx(2.0)


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=1, max_size=12), st.integers(1, 6))
def test_quiet_windows_do_not_count(newest_first: list[str], windows: int) -> None:
    hits, unobserved = (
        np.uint32(sum((one == condition) << at for at, one in enumerate(newest_first)))
        for condition in ("hit", "quiet")
    )
    observed = [one for one in newest_first if one != "quiet"][:windows]
    assert recent_hits(hits, windows, unobserved) == observed.count("hit")


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=6, max_size=6))
def test_a_slowdown_that_outlasts_a_hiccup_hits_both_end_windows_and_most_between(newest_first: list[str]) -> None:
    hits, unobserved = (
        np.uint32(sum((one == condition) << at for at, one in enumerate(newest_first)))
        for condition in ("hit", "quiet")
    )
    ends = [ago for ago in (3, 4) if newest_first[0] == newest_first[ago] == "hit"]
    wanted = any(newest_first[1:ago].count("miss") <= 1 for ago in ends)
    assert outlasts(hits, unobserved, 4, spare=1) is wanted


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=1, max_size=12))
def test_a_run_of_hits_ends_at_the_first_observed_window_without_a_hit(newest_first: list[str]) -> None:
    hits, unobserved = (
        np.uint32(sum((one == condition) << at for at, one in enumerate(newest_first)))
        for condition in ("hit", "quiet")
    )
    run = newest_first[: [*newest_first, "miss"].index("miss")]
    wanted = (run.count("hit"), max((at + 1 for at, one in enumerate(run) if one == "hit"), default=0))
    assert run_of_hits(hits, unobserved) == wanted
