"""The fit of probes alone, while the job is stalled or before it uses an edge."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from faults.diagnosis import Diagnosis, Direction, Scope
from faults.fabric import NOWHERE, Fabric, Floats
from faults.localisation import LocalisationDetector, LocaliserSettings
from faults.localisation.entities import Kind
from faults.localisation.reporting import Finding, Named, diagnosis, key_of
from tests.faults.localisation.fabrics import NoisyWindows, rails, slow_leaf

FABRIC = rails()
HEALTHY = 20  # windows
NOISE = 0.015
NIC = 21


class ProbedJob:
    """A job whose pairs are probed."""

    def __init__(self, *, seed: int = 1, fabric: Fabric = FABRIC) -> None:
        self.fabric, self._windows, self._localiser = (
            fabric,
            NoisyWindows(fabric, seed=seed),
            LocalisationDetector(fabric),
        )
        self._rng = np.random.default_rng(seed + 100)
        self._usual = 0.02 * self._rng.standard_normal(len(fabric))
        self._state = self._localiser.start()
        for _ in range(HEALTHY):
            self.observe()

    def observe(
        self, *, probed: Floats | float = 0.0, slow: Floats | float = 0.0, stalled: bool = False,
        unobserved: Sequence[int] = (),
    ) -> tuple[Diagnosis, ...]:  # fmt: skip
        """One window; `unobserved`: edges without observed traffic."""
        window = self._windows.window(slow)
        window.slowdown[list(unobserved)] = np.nan
        if stalled:
            window.slowdown[:] = np.nan
        reported = self._usual + NOISE * self._rng.standard_t(4, len(self.fabric)) + probed
        self._state, diagnoses = self._localiser.step(self._state, replace(window, probed=reported))
        return diagnoses

    def set_traffic_diagnosis(self, node: int, *, confidence: float) -> None:
        """Store a traffic diagnosis of the node with this confidence."""
        finding = Finding(kind=Kind.TX, which=node, peer=-1, slowdown=0.2, nats=0.0, edges=3, since_s=0.0)
        unsure = diagnosis(finding, detected_s=0.0).model_copy(update={"confidence": confidence})
        traffic = replace(self._state.traffic, named={key_of(finding): Named(unsure)})
        self._state = replace(self._state, traffic=traffic)


def _out_of(nic: int, factor: float = 1.25) -> Floats:
    return np.asarray(np.where(FABRIC.source == nic, np.log(factor), 0.0))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slow_sender_with_little_observed_traffic_is_not_also_a_slow_link(seed: int) -> None:
    probed_job, sent = ProbedJob(seed=seed), np.flatnonzero(FABRIC.source == NIC)
    unobserved = [*sent[1:], *np.flatnonzero(FABRIC.target == NIC)]  # one edge: the traffic fit cannot name the host
    reported = [probed_job.observe(slow=_out_of(NIC), probed=_out_of(NIC), unobserved=unobserved) for _ in range(6)]
    assert {(one.scope, one.node) for diagnoses in reported for one in diagnoses} == {(Scope.NODE, FABRIC.node[NIC])}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sender_that_slows_while_the_job_is_stalled_is_named_and_not_isolated(seed: int) -> None:
    probed_job = ProbedJob(seed=seed)
    reported = [probed_job.observe(probed=_out_of(NIC), stalled=True) for _ in range(4)]
    assert not reported[0]
    assert not reported[1]  # of 10 s each: a hiccup touches two
    (found,) = reported[3]
    assert (found.scope, found.node) == (Scope.NODE, FABRIC.node[NIC])
    assert (found.direction, found.isolate) == (Direction.TX, False)
    assert "one-way-probes" in found.evidence


def test_a_hiccup_while_the_job_is_stalled_gives_no_diagnosis() -> None:
    probed_job = ProbedJob()
    reported = [probed_job.observe(probed=_out_of(NIC, 2.0) if at < 2 else 0.0, stalled=True) for at in range(6)]
    assert not any(reported)


def test_a_slow_leaf_while_the_job_is_stalled_is_diagnosed_as_a_leaf() -> None:
    probed_job = ProbedJob()
    reported = [probed_job.observe(probed=slow_leaf(FABRIC, 2, 1.4), stalled=True) for _ in range(4)]
    assert [(one.scope, one.switch) for one in reported[-1]] == [(Scope.LEAF, "leaf-2")]


def test_a_healthy_job_with_a_long_stall_gives_no_diagnosis() -> None:
    probed_job = ProbedJob()
    assert not any(probed_job.observe(stalled=True) for _ in range(60))


def test_a_node_named_by_traffic_and_probes_is_reported_once_and_isolated() -> None:
    probed_job = ProbedJob()
    slow = np.where(FABRIC.target == NIC, 0.3 * np.log(1.6), _out_of(NIC, 1.6))
    reported = [probed_job.observe(probed=_out_of(NIC, 1.6), slow=slow) for _ in range(5)]
    assert [(one.scope, one.node, one.isolate) for one in reported[-1]] == [(Scope.NODE, FABRIC.node[NIC], True)]


def test_an_uncertain_traffic_diagnosis_does_not_suppress_a_certain_probe_diagnosis() -> None:
    probed_job, node = ProbedJob(), int(FABRIC.node[NIC])
    for _ in range(3):
        probed_job.observe(probed=_out_of(NIC), stalled=True)
    probed_job.set_traffic_diagnosis(node, confidence=0.03)
    (found,) = probed_job.observe(probed=_out_of(NIC), stalled=True)
    assert (found.scope, found.node) == (Scope.NODE, node)
    assert found.confidence >= LocaliserSettings().min_confidence


def test_a_diagnosis_is_withdrawn_when_the_job_resumes_at_normal_speed() -> None:
    probed_job = ProbedJob()
    assert [probed_job.observe(probed=_out_of(NIC), stalled=True) for _ in range(4)][-1]
    assert not [probed_job.observe() for _ in range(5)][-1]


def test_evidence_for_a_link_accumulates_while_the_job_is_stalled() -> None:
    link = np.where(np.arange(len(FABRIC)) == 30, np.log(1.4), 0.0)
    ends = FABRIC.node[FABRIC.source[30]], FABRIC.node[FABRIC.target[30]]
    probed_job, waited = ProbedJob(), ProbedJob()
    assert not probed_job.observe(slow=link, probed=link)
    assert not waited.observe(slow=link, probed=link)
    reported = [probed_job.observe(probed=link, stalled=True) for _ in range(2)]
    assert [(one.scope, one.node, one.peer, one.isolate) for one in reported[-1]] == [(Scope.LINK, *ends, False)]
    assert not any(
        waited.observe(stalled=True) for _ in range(2)
    )  # normal probes: the link did not cause the slow traffic


AWAY, NEAR = (int(np.flatnonzero((FABRIC.up != NOWHERE) == away)[5]) for away in (True, False))


@pytest.mark.parametrize(("edge", "reported"), [(AWAY, False), (NEAR, True)])
def test_probes_alone_name_a_link_only_without_possible_congestion_on_its_path(edge: int, reported: bool) -> None:  # noqa: FBT001
    link = np.where(np.arange(len(FABRIC)) == edge, np.log(1.4), 0.0)
    probed_job = ProbedJob()
    found = [probed_job.observe(probed=link, stalled=True) for _ in range(8)]
    assert any(found) == reported
    assert all(one.scope is Scope.LINK and not one.isolate for diagnoses in found for one in diagnoses)


def test_a_link_with_unobserved_traffic_is_diagnosed_by_its_probe() -> None:
    link = np.where(np.arange(len(FABRIC)) == 30, np.log(1.4), 0.0)
    probed_job = ProbedJob()
    reported = [probed_job.observe(slow=link, probed=link, unobserved=[30] if at in {1, 2} else ()) for at in range(4)]
    assert [one.scope for one in reported[-1]] == [Scope.LINK]
