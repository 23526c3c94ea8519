"""Uneven data is not a hardware fault: the common lateness of a replica, and the noise that remains."""

from dataclasses import replace

import numpy as np
import pytest

from faults.fabric import Floats
from faults.stragglers import Roles, Stragglers, StragglerSettings, StragglerState, peers

WINDOW_S, JITTER = 5.0, 0.019
HISTORY = 120  # windows


def roles(stages: int, replicas: int) -> Roles:
    nodes = np.arange(stages * replicas)
    return Roles(nodes // replicas, nodes % replicas)


class Job:
    """Gaps of nodes that differ by 1 %; replicas may differ in each window."""

    def __init__(self, of: Roles, seed: int, *, uneven: float = 0.0) -> None:
        self.rng, self.of, self.uneven, self.nodes = np.random.default_rng(seed), of, uneven, of.stage.size
        self.usual = 0.01 * self.rng.standard_normal(self.nodes)
        self.detector = Stragglers(of)
        self.state: StragglerState = self.detector.start()
        self.at = 0
        self.named: set[int | None] = set()

    def windows(self, many: int, late: Floats | float = 0.0, *, silent: Floats | None = None) -> None:
        for _ in range(many):
            data = self.uneven * self.rng.standard_normal(self.nodes)[self.of.replica]
            gaps = np.exp(self.usual + data + late + JITTER * self.rng.standard_normal(self.nodes))
            if silent is not None:
                gaps[silent] = np.nan
            self.at += 1
            self.state, diagnoses = self.detector.step(self.state, gaps, WINDOW_S * self.at, window_s=WINDOW_S)
            self.named |= {one.node for one in diagnoses}


def more(of: Roles, replica: int, share: float) -> Floats:
    return np.asarray(np.where(of.replica == replica, np.log1p(share), 0.0))


def one(of: Roles, node: int, share: float) -> Floats:
    return np.asarray(np.where(np.arange(of.stage.size) == node, np.log1p(share), 0.0))


@pytest.mark.parametrize("stages", [3, 4, 8])
def test_a_replica_with_more_data_gives_no_straggler(stages: int) -> None:
    """This holds also when a replica has too few nodes to subtract its common part: all are equally late."""
    of = roles(stages, 24)
    job = Job(of, 1)
    job.windows(HISTORY)
    job.windows(60, more(of, 5, 0.10))
    assert not job.named


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_a_node_that_is_late_alone_is_named(stages: int) -> None:
    of = roles(stages, 24)
    job = Job(of, 2)
    job.windows(HISTORY)
    job.windows(40, one(of, 5 + 24, 0.10))
    assert job.named == {5 + 24}


def test_a_slow_replica_of_two_nodes_names_both() -> None:
    """Two nodes do not separate data from hardware.  The detector reports both, and an operator decides."""
    of = roles(2, 24)
    job = Job(of, 3)
    job.windows(HISTORY)
    job.windows(40, more(of, 5, 0.10))
    assert job.named == {5, 5 + 24}


@pytest.mark.parametrize(("stages", "observed"), [(3, 1), (3, 2), (8, 1), (8, 3)])
def test_a_replica_with_too_few_observed_nodes_names_no_node(stages: int, observed: int) -> None:
    of = roles(stages, 24)
    job = Job(of, 4)
    job.windows(HISTORY)
    silent = (of.replica == 5) & (of.stage >= observed)
    job.windows(40, one(of, 5, 0.10), silent=silent)
    assert not job.named
    job.windows(40, one(of, 5, 0.10))
    assert job.named == {5}


def test_the_common_part_of_a_replica_with_too_few_observed_nodes_is_unknown() -> None:
    of, rng = roles(8, 24), np.random.default_rng(5)
    gap = more(of, 7, 0.3) + 0.001 * rng.standard_normal(8 * 24)
    gap[(of.replica == 7) & (of.stage >= peers.REPLICA_FEW - 1)] = np.nan
    common = peers.common(gap, of, few=3, noise=0.001)
    np.testing.assert_array_equal(np.isnan(common), of.replica == 7)


def test_old_evidence_does_not_name_a_node_that_has_recovered() -> None:
    """Old evidence just below its bar and one late window do not suffice after a normal minute."""
    of = roles(8, 24)
    job = Job(of, 6)
    job.windows(HISTORY)
    bank, bar = job.state.bank, StragglerSettings().bars(job.nodes, WINDOW_S)[0]
    evidence, count, total = bank.evidence.copy(), bank.count.copy(), bank.total.copy()
    since_s = bank.since_s.copy()
    evidence[0, 30], count[0, 30], total[0, 30] = bar - 0.1, 20.0, 20.0 * np.log(1.03)
    since_s[0, 30] = WINDOW_S * (job.at - 20)
    old = replace(bank, evidence=evidence, count=count, total=total, since_s=since_s)
    job.state = replace(job.state, bank=old)
    job.windows(1, one(of, 30, 0.05))
    assert not job.named
    assert 0.0 < float(job.state.bank.evidence[0, 30]) < 0.6 * bar


@pytest.mark.parametrize(("slow", "lasts", "seed"), [(0.10, 60, 10), (0.70, 20, 9), (1.50, 30, 9)])
def test_the_baseline_is_not_learnt_from_a_slow_node(slow: float, lasts: int, seed: int) -> None:
    """The baseline also stays unchanged during the recovery.  Otherwise a later window would name the node falsely."""
    of = roles(8, 24)
    job = Job(of, seed)
    job.windows(HISTORY)
    before = float(job.state.filter_state.usual[30])
    job.windows(1, one(of, 30, slow / 3.0))  # it begins within a window
    job.windows(lasts, one(of, 30, slow))
    assert job.named == {30}
    job.windows(30)
    assert not job.state.named
    assert float(job.state.filter_state.usual[30]) == pytest.approx(before, abs=0.003)
    job.named.clear()
    job.windows(2 * HISTORY)
    assert not job.named


@pytest.mark.parametrize(("stages", "uneven"), [(4, 0.1), (5, 0.1), (8, 0.1), (8, 0.0), (16, 0.1)])
def test_the_jitter_estimate_excludes_uneven_data(stages: int, uneven: float) -> None:
    """One node of each replica equals its median, so a median over nodes would underestimate the jitter."""
    of = roles(stages, 512 // stages)
    job = Job(of, 8, uneven=uneven)
    job.windows(2 * HISTORY)
    x = np.random.default_rng(9).standard_normal((20_000, stages))
    left = float((x - np.median(x, axis=1, keepdims=True)).std()) if uneven else 1.0
    assert job.state.scales.moved == pytest.approx(left * JITTER, rel=0.025)
