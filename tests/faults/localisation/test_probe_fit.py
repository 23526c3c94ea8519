"""The fit of probes alone, while the job stands or before it uses an edge."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from faults.diagnosis import Diagnosis, Direction, Scope
from faults.fabric import NOWHERE, Fabric, Floats
from faults.localisation import LocalisationDetector, LocaliserSettings
from faults.localisation.entities import Kind
from faults.localisation.reporting import Finding, Named, diagnosis, key_of
from tests.faults.localisation.fabrics import Weather, rails, slow_leaf

FABRIC = rails()
HEALTHY = 20  # windows
NOISE = 0.015
NIC = 21


class Watched:
    """A job whose pairs are probed."""

    def __init__(self, *, seed: int = 1, fabric: Fabric = FABRIC) -> None:
        self.fabric, self._weather, self._localiser = fabric, Weather(fabric, seed=seed), LocalisationDetector(fabric)
        self._rng = np.random.default_rng(seed + 100)
        self._usual = 0.02 * self._rng.standard_normal(len(fabric))
        self._state = self._localiser.start()
        for _ in range(HEALTHY):
            self.observe()

    def observe(
        self, *, probed: Floats | float = 0.0, slow: Floats | float = 0.0, stands: bool = False,
        unheard: Sequence[int] = (),
    ) -> tuple[Diagnosis, ...]:  # fmt: skip
        """One window; `unheard`: edges without observed traffic."""
        window = self._weather.window(slow)
        window.slowdown[list(unheard)] = np.nan
        if stands:
            window.slowdown[:] = np.nan
        reported = self._usual + NOISE * self._rng.standard_t(4, len(self.fabric)) + probed
        self._state, diagnoses = self._localiser.step(self._state, replace(window, probed=reported))
        return diagnoses

    def believe(self, node: int, *, confidence: float) -> None:
        """As if traffic had named a node with this confidence."""
        finding = Finding(kind=Kind.TX, which=node, peer=-1, slowdown=0.2, nats=0.0, edges=3, since_s=0.0)
        unsure = diagnosis(finding, detected_s=0.0).model_copy(update={"confidence": confidence})
        traffic = replace(self._state.traffic, named={key_of(finding): Named(unsure)})
        self._state = replace(self._state, traffic=traffic)


def _out_of(nic: int, factor: float = 1.25) -> Floats:
    return np.asarray(np.where(FABRIC.source == nic, np.log(factor), 0.0))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sender_of_whose_traffic_little_is_heard_is_no_slow_link_beside(seed: int) -> None:
    watched, sent = Watched(seed=seed), np.flatnonzero(FABRIC.source == NIC)
    unheard = [*sent[1:], *np.flatnonzero(FABRIC.target == NIC)]  # one edge: no fit of traffic makes a host of it
    reported = [watched.observe(slow=_out_of(NIC), probed=_out_of(NIC), unheard=unheard) for _ in range(6)]
    assert {(one.scope, one.node) for diagnoses in reported for one in diagnoses} == {(Scope.NODE, FABRIC.node[NIC])}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sender_that_falls_slow_while_the_job_stands_is_named_and_not_isolated(seed: int) -> None:
    watched = Watched(seed=seed)
    reported = [watched.observe(probed=_out_of(NIC), stands=True) for _ in range(4)]
    assert not reported[0]
    assert not reported[1]  # of 10 s each: a hiccup touches two
    (found,) = reported[3]
    assert (found.scope, found.node) == (Scope.NODE, FABRIC.node[NIC])
    assert (found.direction, found.isolate) == (Direction.TX, False)
    assert "one-way-probes" in found.evidence


def test_a_hiccup_while_the_job_stands_is_nobodys() -> None:
    watched = Watched()
    reported = [watched.observe(probed=_out_of(NIC, 2.0) if at < 2 else 0.0, stands=True) for at in range(6)]
    assert not any(reported)


def test_a_leaf_while_the_job_stands_is_a_leaf_and_no_node() -> None:
    watched = Watched()
    reported = [watched.observe(probed=slow_leaf(FABRIC, 2, 1.4), stands=True) for _ in range(4)]
    assert [(one.scope, one.switch) for one in reported[-1]] == [(Scope.LEAF, "leaf-2")]


def test_a_healthy_job_that_stands_for_long_names_nobody() -> None:
    watched = Watched()
    assert not any(watched.observe(stands=True) for _ in range(60))


def test_what_traffic_accuses_too_is_told_once_and_may_be_isolated() -> None:
    watched = Watched()
    slow = np.where(FABRIC.target == NIC, 0.3 * np.log(1.6), _out_of(NIC, 1.6))
    reported = [watched.observe(probed=_out_of(NIC, 1.6), slow=slow) for _ in range(5)]
    assert [(one.scope, one.node, one.isolate) for one in reported[-1]] == [(Scope.NODE, FABRIC.node[NIC], True)]


def test_what_traffic_is_not_sure_of_does_not_keep_back_what_probes_are() -> None:
    watched, node = Watched(), int(FABRIC.node[NIC])
    for _ in range(3):
        watched.observe(probed=_out_of(NIC), stands=True)
    watched.believe(node, confidence=0.03)
    (found,) = watched.observe(probed=_out_of(NIC), stands=True)
    assert (found.scope, found.node) == (Scope.NODE, node)
    assert found.confidence >= LocaliserSettings().least_confidence


def test_when_the_job_goes_on_and_nothing_is_slow_the_name_is_taken_back() -> None:
    watched = Watched()
    assert [watched.observe(probed=_out_of(NIC), stands=True) for _ in range(4)][-1]
    assert not [watched.observe() for _ in range(5)][-1]


def test_a_link_goes_on_being_judged_while_the_job_stands() -> None:
    link = np.where(np.arange(len(FABRIC)) == 30, np.log(1.4), 0.0)
    ends = FABRIC.node[FABRIC.source[30]], FABRIC.node[FABRIC.target[30]]
    watched, waited = Watched(), Watched()
    assert not watched.observe(slow=link, probed=link)
    assert not waited.observe(slow=link, probed=link)
    reported = [watched.observe(probed=link, stands=True) for _ in range(2)]
    assert [(one.scope, one.node, one.peer, one.isolate) for one in reported[-1]] == [(Scope.LINK, *ends, False)]
    assert not any(waited.observe(stands=True) for _ in range(2))  # as usual: what traffic lacked was not the wire's


AWAY, NEAR = (int(np.flatnonzero((FABRIC.up != NOWHERE) == away)[5]) for away in (True, False))


@pytest.mark.parametrize(("edge", "reported"), [(AWAY, False), (NEAR, True)])
def test_probes_alone_name_a_link_only_where_no_weather_lies_on_the_way(edge: int, reported: bool) -> None:  # noqa: FBT001
    link = np.where(np.arange(len(FABRIC)) == edge, np.log(1.4), 0.0)
    watched = Watched()
    found = [watched.observe(probed=link, stands=True) for _ in range(8)]
    assert any(found) == reported
    assert all(one.scope is Scope.LINK and not one.isolate for diagnoses in found for one in diagnoses)


def test_a_link_whose_traffic_is_not_heard_for_a_while_is_judged_by_its_probe() -> None:
    link = np.where(np.arange(len(FABRIC)) == 30, np.log(1.4), 0.0)
    watched = Watched()
    reported = [watched.observe(slow=link, probed=link, unheard=[30] if at in {1, 2} else ()) for at in range(4)]
    assert [one.scope for one in reported[-1]] == [Scope.LINK]
