"""The diagnoses of a small job do not depend on the end that reports a pair's trains."""

import numpy as np
import pytest

from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.observations import Observation, Probe
from tests.faults.ends import End, reported_by
from tests.faults.slow.test_detector import NODES, diagnoses, job

WIRE_S, TURN_S, FROM_S, UNTIL_S = 0.0026, 0.5, 14.0, 22.0


def trains() -> list[Observation]:
    """One train per pair in 2.5 s, so few that each counts.  Later, trains from node 4 take 1.5 times as long."""
    rng, found = np.random.default_rng(5), []
    for turn in range(int(UNTIL_S / TURN_S)):
        sent_s = TURN_S * turn
        for source in range(NODES):
            pair = source, (source + 1 + turn % (NODES - 1)) % NODES
            tail_s = WIRE_S * (1.5 if pair[0] == 4 and sent_s >= FROM_S else 1.0) * float(rng.normal(1.0, 0.003))
            values = Probe(65_536, sent_s, sent_s + 2 * tail_s, tail_s)
            found.append(Observation(sent_s + 0.1, pair[1], values, peer=pair[0]))
    return found


def diagnoses_from(end: End) -> list[Diagnosis]:
    stream = sorted(
        [*job({(4, 3): 1.5}, FROM_S, UNTIL_S), *reported_by(end, trains())], key=lambda observation: observation.at_s
    )
    return list(diagnoses(Job(NODES, tuple(range(NODES))), stream).values())


@pytest.fixture(scope="module")
def by_receivers() -> list[Diagnosis]:
    return diagnoses_from(End.RECEIVER)


def probed(found: list[Diagnosis]) -> list[tuple[object, ...]]:
    """The diagnoses with evidence from probes."""
    return [(one.fault, one.node, one.peer, one.direction) for one in found if "one-way-probes" in one.evidence]


def test_probe_evidence_changes_the_diagnosis(by_receivers: list[Diagnosis]) -> None:
    ((_fault, node, peer, _way),) = probed(by_receivers)
    assert (node, peer) == (4, None)
    assert not probed(diagnoses_from(End.NEITHER))


def test_a_train_reported_by_both_ends_counts_once(by_receivers: list[Diagnosis]) -> None:
    assert diagnoses_from(End.BOTH) == by_receivers


def test_sender_reports_alone_give_the_same_diagnoses(by_receivers: list[Diagnosis]) -> None:
    assert probed(diagnoses_from(End.SENDER)) == probed(by_receivers)
