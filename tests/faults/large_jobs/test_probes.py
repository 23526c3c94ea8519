"""One-way probes in a stream give the probed slowdown of each edge in a window."""

from collections.abc import Iterator

import numpy as np
import pytest

from faults.detector import Job
from faults.diagnosis import Diagnosis, Direction, Scope
from faults.large_jobs import LargeJobDetector
from faults.large_jobs.settings import LargeJobSettings
from faults.large_jobs.traffic_graph import Sum, Trains, settled, window
from faults.observations import Observation, Probe
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from tests.faults.ends import End, reported_by
from tests.faults.large_jobs.streams import WINDOW_S, Stream, cluster, job_of

SETTINGS = LargeJobSettings()
NODES = 8
JOB = Job(nodes=NODES, rank_node=tuple(range(NODES)))


def probe(source: int, target: int, took_s: float, *, tail: bool = True, offset_s: float = 0.0) -> Observation:
    sent_s = 10.0
    return Observation(
        11.0, target, Probe(65_536, sent_s, sent_s + took_s + offset_s, took_s if tail else None), peer=source
    )


def total(bytes_: int = 10_000_000, busy_us: int = 400_000) -> Sum:
    one = Sum()
    one.bytes, one.busy_us, one.connections = bytes_, busy_us, 1
    return one


def probed_slowdown(trains: Trains) -> dict[tuple[int, int], float] | None:
    sums = {(node, (node + hop) % NODES): total() for node in range(NODES) for hop in (1, 3)}
    edges = settled([sums] * 3, JOB, SETTINGS)
    assert edges is not None
    probed = window(edges, sums, SETTINGS, from_s=0.0, to_s=5.0, trains=trains).probed
    return None if probed is None else {pair: float(probed[at]) for pair, at in edges.at.items()}


@pytest.mark.parametrize("tail", [True, False])
def test_the_fastest_train_of_a_pair_is_compared_with_other_pairs(tail: bool) -> None:  # noqa: FBT001 - a parameter
    trains = Trains()
    for node in range(NODES):
        for took_s in (0.05, 0.002 if node != 3 else 0.003, 0.009):
            observation = probe(node, (node + 1) % NODES, took_s, tail=tail)
            trains.take(observation, observation.values) if isinstance(observation.values, Probe) else None
    found = probed_slowdown(trains)
    assert found is not None
    assert found[3, 4] == pytest.approx(np.log(1.5))
    assert all(found[node, (node + 1) % NODES] == pytest.approx(0.0) for node in range(NODES) if node != 3)
    assert np.isnan(found[3, 6])


def test_clock_offsets_do_not_matter_when_the_receiver_reports_the_spacing() -> None:
    trains = Trains()
    for node in range(NODES):
        for _ in range(3):
            observation = probe(node, (node + 1) % NODES, 0.002, offset_s=-5.0 * node)
            trains.take(observation, observation.values) if isinstance(observation.values, Probe) else None
    found = probed_slowdown(trains)
    assert found is not None
    assert np.nanmax(np.abs(list(found.values()))) < 1e-9


def test_few_probes_or_broken_clocks_give_no_slowdown() -> None:
    trains = Trains()
    for took_s in (0.002, 0.002):
        observation = probe(0, 1, took_s)
        trains.take(observation, observation.values) if isinstance(observation.values, Probe) else None
    for _ in range(5):
        observation = probe(1, 2, 0.002, tail=False, offset_s=-1.0)
        trains.take(observation, observation.values) if isinstance(observation.values, Probe) else None
    assert probed_slowdown(trains) is None


def diagnoses_of(slow: FaultEvent, *, slow_sender: int | None, end: End = End.RECEIVER) -> list[Diagnosis]:
    """Diagnoses of a stream with a slow node and five probes per pair and window, reported by `end`.

    `slow_sender`: the node whose outgoing probes are slow.
    """
    of = cluster()
    stream, rng = Stream(of, seed=5), np.random.default_rng(6)
    detector = LargeJobDetector(job_of(of))
    found: dict[tuple[object, ...], Diagnosis] = {}
    for _ in range(24):
        from_s = stream.at_s
        sick = from_s >= slow.from_s
        observations = [
            *stream.windows(1, [slow], longer=2.0 if sick else 1.0),
            *reported_by(end, _probes(stream, rng, slow_sender if sick else None, from_s)),
        ]
        for one in sorted(observations, key=lambda each: each.at_s):
            detector.observe(one)
        for diagnosis in detector.evaluate(from_s + WINDOW_S + 1.5):
            found[diagnosis.scope, diagnosis.node, diagnosis.peer] = diagnosis
    return list(found.values())


def _probes(stream: Stream, rng: np.random.Generator, slow_sender: int | None, from_s: float) -> Iterator[Observation]:
    fabric = stream.of.fabric
    pairs = set(zip(fabric.source.tolist(), fabric.target.tolist(), strict=True))
    for source, target in sorted(pairs):
        wire_s = 0.002 * (1.5 if source == slow_sender else 1.0)
        for at in range(5):
            took_s = wire_s * float(np.exp(0.01 * rng.standard_normal()))
            at_s = from_s + 0.9 * at
            yield Observation(at_s, target, Probe(65_536, at_s, at_s + took_s, took_s), peer=source)


SLOW = FaultEvent(FaultKind.SLOW_TX, 9, 60.0, 200.0, 1.5)


def test_probes_identify_a_slow_sender() -> None:
    found = [one for one in diagnoses_of(SLOW, slow_sender=9) if one.scope is Scope.NODE]
    assert [(one.node, one.direction, one.isolate) for one in found] == [(9, Direction.TX, True)]


@pytest.mark.parametrize("end", [End.SENDER, End.BOTH])
def test_sender_reports_give_the_same_diagnoses_as_receiver_reports(end: End) -> None:
    assert (
        diagnoses_of(SLOW, slow_sender=9, end=end)
        == diagnoses_of(SLOW, slow_sender=9)
        != diagnoses_of(SLOW, slow_sender=9, end=End.NEITHER)
    )


def test_a_train_reported_by_both_ends_counts_once_in_a_window() -> None:
    """Two trains of a pair are too few, also when both ends report them."""
    reported: list[list[Diagnosis]] = []
    for every in (1, 2):
        of = cluster()
        stream, rng = Stream(of, seed=5), np.random.default_rng(6)
        detector, found = LargeJobDetector(job_of(of)), dict[object, Diagnosis]()
        for _ in range(24):
            from_s = stream.at_s
            sick = from_s >= SLOW.from_s
            trains = _probes(stream, rng, 9 if sick else None, from_s)
            few = [one for at, one in enumerate(trains) if at % 5 < 2]
            observed = reported_by(End.BOTH if every == 2 else End.RECEIVER, few)
            observations = [*stream.windows(1, [SLOW], longer=2.0 if sick else 1.0), *observed]
            for one in sorted(observations, key=lambda each: each.at_s):
                detector.observe(one)
            found |= {(one.scope, one.node, one.peer): one for one in detector.evaluate(from_s + WINDOW_S + 1.5)}
        reported.append(list(found.values()))
    assert reported[0] == reported[1]


def test_normal_probes_rule_out_a_slow_node() -> None:
    assert not [one for one in diagnoses_of(SLOW, slow_sender=None) if one.scope is Scope.NODE]


def test_probes_identify_a_slow_sender_while_the_job_is_stalled() -> None:
    of = cluster()
    stream, rng = Stream(of, seed=5), np.random.default_rng(6)
    detector = LargeJobDetector(job_of(of))
    reported: list[list[Diagnosis]] = []
    for at in range(20):
        from_s, stalled = stream.at_s, at >= 12
        observations = [] if stalled else list(stream.windows(1))
        stream.at_s = from_s + WINDOW_S
        for one in sorted(
            [*observations, *_probes(stream, rng, 9 if stalled else None, from_s)], key=lambda each: each.at_s
        ):
            detector.observe(one)
        reported.append(list(detector.evaluate(from_s + WINDOW_S + 1.5)))
    assert not any(reported[:14])  # two windows of it are no more than a hiccup
    (found,) = reported[17]
    assert (found.scope, found.node, found.direction, found.isolate) == (Scope.NODE, 9, Direction.TX, False)
