"""What probes change: who is convicted, who is acquitted, which way, and that without them nothing changes."""

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
from tests.faults.localisation.fabrics import Weather, rails, slow_leaf, slow_rx, slow_tx

FABRIC = rails()
HEALTHY, SICK = 20, 6  # windows
PROBE_NOISE = 0.015


def one_way(fabric: Fabric, *, out: int | None = None, into: int | None = None, factor: float = 1.5) -> Floats:
    """What probes feel of a slow NIC: nothing comes back."""
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
    weather, localiser = Weather(fabric, seed=seed, noise=noise), LocalisationDetector(fabric, settings)
    rng, state = np.random.default_rng(seed + 100), localiser.start()
    usual = 0.02 * rng.standard_normal(len(fabric))
    found: dict[tuple[object, ...], Diagnosis] = {}
    for at in range(HEALTHY + during):
        sick = at >= HEALTHY
        window = weather.window(slow if sick else 0.0)
        if probed is not None:
            reported = usual + PROBE_NOISE * rng.standard_t(4, len(fabric)) + (probed if sick else 0.0 * probed)
            window = replace(window, probed=reported)
        state, diagnoses = localiser.step(state, window)
        for one in diagnoses:
            found[one.scope, one.node, one.peer, one.switch] = one
    return list(found.values())


def test_probes_that_are_not_heard_change_nothing() -> None:
    slow = slow_tx(FABRIC, 21, 1.5)
    assert named(slow, np.full(len(FABRIC), np.nan)) == named(slow, None)


def test_probes_that_agree_isolate() -> None:
    (found,) = named(slow_tx(FABRIC, 21, 1.5), one_way(FABRIC, out=21))
    assert (found.scope, found.node, found.isolate, found.direction) == (Scope.NODE, 10, True, Direction.TX)


@pytest.mark.parametrize(("pattern", "isolated"), [("sick well sick", False), ("sick sick sick", True)])
def test_two_hiccups_isolate_nobody_though_probes_agree(pattern: str, *, isolated: bool) -> None:
    weather, localiser = Weather(FABRIC, seed=1), LocalisationDetector(FABRIC)
    rng, state, found = np.random.default_rng(101), localiser.start(), list[Diagnosis]()
    slow, probed = slow_tx(FABRIC, 21, 1.5), one_way(FABRIC, out=21)
    for word in [*["well"] * HEALTHY, *pattern.split(), "well"]:
        sick = float(word == "sick")
        reported = sick * probed + PROBE_NOISE * rng.standard_t(4, len(FABRIC))
        state, diagnoses = localiser.step(state, replace(weather.window(sick * slow), probed=reported))
        found += diagnoses
    assert any(one.isolate for one in found) is isolated


@pytest.mark.parametrize("nic", [8, 21, 40])
def test_probes_as_usual_acquit(nic: int) -> None:
    """As when acknowledgements of all its edges met one crowded cable."""
    assert not [one for one in named(slow_rx(FABRIC, nic, 1.3), np.zeros(len(FABRIC))) if one.scope is Scope.NODE]


@pytest.mark.parametrize(("way", "reported"), [("out", Direction.TX), ("into", Direction.RX), ("both", Direction.BOTH)])
def test_probes_tell_the_direction_that_acknowledgements_hide(way: str, reported: Direction) -> None:
    slow = np.maximum(slow_tx(FABRIC, 21, 1.5, leak=1.0), slow_rx(FABRIC, 21, 1.5, leak=1.0))
    felt = one_way(FABRIC, out=21 if way != "into" else None, into=21 if way != "out" else None)
    found = [one for one in named(slow, felt, settings=LocaliserSettings(leak=1.0)) if one.scope is Scope.NODE]
    assert [(one.node, one.direction, one.isolate) for one in found] == [(10, reported, True)]


def test_a_slow_leaf_isolates_nobody_though_all_its_probes_are_slow() -> None:
    slow = slow_leaf(FABRIC, 3, 1.5)
    found = named(slow, slow)
    assert (Scope.LEAF, "leaf-3") in [(one.scope, one.switch) for one in found]
    assert not [one for one in found if one.isolate]


def test_weather_on_a_probe_names_nobody() -> None:
    edge = int(np.flatnonzero(FABRIC.up >= 0)[5])
    felt = np.where(np.arange(len(FABRIC)) == edge, np.log(1.5), 0.0)
    assert not named(np.zeros(len(FABRIC)), felt, during=30)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_link_that_traffic_only_hints_at_is_named_with_its_probe(seed: int) -> None:
    slow = np.where(np.arange(len(FABRIC)) == 30, np.log(1.25), 0.0)
    alone = named(slow, None, noise=0.06, seed=seed)
    (found,) = named(slow, slow, noise=0.06, seed=seed)
    assert not alone
    assert (found.scope, found.isolate) == (Scope.LINK, False)
    assert (found.node, found.peer) == (FABRIC.node[FABRIC.source[30]], FABRIC.node[FABRIC.target[30]])


@given(st.integers(0, 4), st.integers(1, 5), st.floats(0.1, 8.0))
def test_the_price_of_hashed_ways_is_that_of_all_ways_to_hash(flows: int, count: int, price: float) -> None:
    every = list(itertools.product(range(count), repeat=flows))
    chance = math.fsum(math.exp(-price * len(set(hashed))) for hashed in every) / len(every)
    assert hashed_nats(flows, count, price) == pytest.approx(-math.log(chance), abs=1e-9)


@given(st.floats(0.0, 1.0), st.floats(0.05, 1.5))
def test_a_hiccup_of_two_windows_lasts_two_wherever_it_begins(begin: float, slow: float) -> None:
    readings = [np.full(4, share * slow) for share in (1.0 - begin, 1.0, begin)]
    assert windows_slow(readings) == pytest.approx(2.0)


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=1, max_size=12), st.integers(1, 6))
def test_quiet_windows_do_not_count(newest_first: list[str], windows: int) -> None:
    hits, unobserved = (
        np.uint32(sum((one == word) << at for at, one in enumerate(newest_first))) for word in ("hit", "quiet")
    )
    talked = [one for one in newest_first if one != "quiet"][:windows]
    assert recent_hits(hits, windows, unobserved) == talked.count("hit")


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=6, max_size=6))
def test_what_outlasts_a_hiccup_accuses_at_both_ends_and_nearly_always_between(newest_first: list[str]) -> None:
    hits, unobserved = (
        np.uint32(sum((one == word) << at for at, one in enumerate(newest_first))) for word in ("hit", "quiet")
    )
    ends = [ago for ago in (3, 4) if newest_first[0] == newest_first[ago] == "hit"]
    wanted = any(newest_first[1:ago].count("miss") <= 1 for ago in ends)
    assert outlasts(hits, unobserved, 4, spare=1) is wanted


@given(st.lists(st.sampled_from(["hit", "miss", "quiet"]), min_size=1, max_size=12))
def test_a_run_of_hits_ends_at_the_first_window_that_was_heard_and_does_not_accuse(newest_first: list[str]) -> None:
    hits, unobserved = (
        np.uint32(sum((one == word) << at for at, one in enumerate(newest_first))) for word in ("hit", "quiet")
    )
    run = newest_first[: [*newest_first, "miss"].index("miss")]
    wanted = (run.count("hit"), max((at + 1 for at, one in enumerate(run) if one == "hit"), default=0))
    assert run_of_hits(hits, unobserved) == wanted
