"""Runs a scenario, job after job, with a set of detectors, and adds up the scores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Scope
from faults.simulator.cluster import Cluster, Shape, build
from faults.simulator.compute import ComputePlane, Gaps
from faults.simulator.congestion import Congestion
from faults.simulator.detectors import DetectorFactory, Detectors, SimulatedDetector
from faults.simulator.fault_mix import drawn, negatives
from faults.simulator.fault_schedule import FaultEvent, FaultKind, FaultSchedule, takes_machine
from faults.simulator.probes import Probers
from faults.simulator.scenario import HOUR_S, Scenario
from faults.simulator.score import Outcome, Scorer
from faults.simulator.slow import SlowPlane
from faults.simulator.stall_plane import StallPlane
from faults.simulator.telemetry import Telemetry

MIN_REPORTED = 0.5  # of the time in which it can be named
WINDOW_S = 5.0
GAP_WINDOWS = 2  # per window, as in the fault monitor: stragglers have shorter windows
CONGESTED_FACTOR = 1.1
Clock = Callable[[], float]


def only_observer(one: FaultEvent) -> int | None:
    """Return the node whose agent alone can observe the event; None if others can."""
    if one.kind in (FaultKind.HANG_CODE, FaultKind.STRAGGLER) or (
        one.kind is FaultKind.CRASH and not takes_machine(one)
    ):
        return one.at
    return None


class Observability:
    """Counts for how much of its time each fault's only observer reported.

    A stopped or slow process is observable only by its own agent: other nodes only observe that the rank is missing.
    While this agent is lost, the rank is one of all silent ranks, and no rule can name it.
    """

    def __init__(self, faults: Sequence[FaultEvent], unanswered: NDArray[np.bool_], *, in_time_s: float) -> None:
        """`unanswered`: per node, whether the independent source can never report its machine as dead."""
        self._in_time_s, self._unanswered = in_time_s, unanswered
        self._reported_s = {one: 0.0 for one in faults if only_observer(one) is not None}
        self._coming = sorted(self._reported_s, key=lambda one: one.from_s, reverse=True)
        self._open: list[FaultEvent] = []

    def observe(
        self, from_s: float, to_s: float, reported: NDArray[np.bool_], *, with_records: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the reporting agents of a window, and the nodes whose ranks' records arrive (None: the same nodes)."""
        while self._coming and self._coming[-1].from_s < to_s:
            self._open.append(self._coming.pop())
        self._open = [one for one in self._open if one.from_s + self._in_time_s > from_s]
        for one in self._open:
            of = reported if with_records is None or one.kind is not FaultKind.STRAGGLER else with_records
            if of[one.at]:
                self._reported_s[one] += min(to_s, one.from_s + self._in_time_s) - max(from_s, one.from_s)

    def hidden(self, one: FaultEvent) -> bool:
        if takes_machine(one):
            return bool(self._unanswered[one.at])
        return one in self._reported_s and self._reported_s[one] < MIN_REPORTED * self._in_time_s


def jobs(
    scenario: Scenario,
    *,
    ranks: int,
    hours: float,
    seed: int,
    detector_factory: DetectorFactory,
    clock_s: Clock,
    window_s: float = WINDOW_S,
) -> Iterator[Outcome]:
    count = max(1, round(hours * HOUR_S / scenario.job_s))
    until_s = min(scenario.job_s, hours * HOUR_S)
    for at in range(count):
        yield job(
            scenario,
            ranks=ranks,
            until_s=until_s,
            seed=(seed, at),
            detector_factory=detector_factory,
            clock_s=clock_s,
            window_s=window_s,
        )


def job(
    scenario: Scenario,
    *,
    ranks: int,
    until_s: float,
    seed: tuple[int, int],
    detector_factory: DetectorFactory,
    clock_s: Clock,
    window_s: float = WINDOW_S,
) -> Outcome:
    shape = Shape(ranks=ranks, stages=scenario.stages, trees=scenario.trees, experts=scenario.experts)
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    ports = scenario.probe_ports if scenario.probes else 0
    cluster = build(shape, seed=number, paths_known=scenario.paths_known, probe_ports=ports)
    events = schedule(scenario, cluster, until_s=until_s, rng=np.random.default_rng([number, 5]))
    detectors = detector_factory(cluster)
    planes = _Planes(scenario, cluster, detectors, window_s=window_s, seed=number)
    scorer = Scorer(cluster.fabric, events, until_s=until_s, in_time_s=scenario.in_time_s)
    observability = Observability(scorer.eligible, planes.unanswered, in_time_s=scenario.in_time_s)
    timeline, spent_s = FaultSchedule(events), list[float]()
    for at in range(int(until_s // window_s)):
        from_s = at * window_s
        lasting = timeline.during(from_s, from_s + window_s)
        spent_s.append(0.0)
        for now_s, evaluate in planes.windows(from_s, lasting):
            begun_s = clock_s()
            diagnoses = evaluate()
            spent_s[-1] += clock_s() - begun_s
            scorer.observe(now_s, diagnoses, congested=planes.congested)
        observability.observe(from_s, from_s + window_s, planes.reported, with_records=planes.with_records)
    scorer.hide(observability.hidden)
    return Outcome(hours=until_s / HOUR_S, tally=scorer.tally, spent_s=spent_s, false_diagnoses=scorer.false_diagnoses)


def schedule(scenario: Scenario, cluster: Cluster, *, until_s: float, rng: np.random.Generator) -> list[FaultEvent]:
    """Draw faults by the scenario's mix after its quiet time, and background events."""
    mix, rarer = scenario.mix, 16_384 / cluster.shape.ranks if scenario.natural else 1.0
    mix = replace(mix, rest_s=mix.rest_s * rarer, first_s=mix.first_s * rarer)
    found = [
        replace(one, from_s=one.from_s + scenario.quiet_s, to_s=one.to_s + scenario.quiet_s)
        for one in drawn(cluster, mix, until_s=until_s - scenario.quiet_s, rng=rng)
    ]
    background = scenario.background_h * until_s / HOUR_S * cluster.shape.ranks / 16_384
    return found + negatives(cluster, count=int(rng.poisson(background)), until_s=until_s, rng=rng)


class _Planes:
    def __init__(
        self, scenario: Scenario, cluster: Cluster, detectors: Detectors, *, window_s: float, seed: int
    ) -> None:
        self._cluster, self._window_s = cluster, window_s
        self._congestion = Congestion(
            cluster.shape.uplinks, scenario.congestion_rates, np.random.default_rng([seed, 6])
        )
        self._telemetry, self._probing = (
            Telemetry(cluster.shape.nodes, scenario.losses, np.random.default_rng([seed, drawn])) for drawn in (7, 12)
        )
        noise, planes = scenario.noise, scenario.planes
        skew_s = self._telemetry.skew_s
        self._skew_s = scenario.losses.skew_s
        self._slow = SlowPlane(cluster, noise, window_s=window_s, seed=seed, skew_s=skew_s)
        self._gap_s = window_s / GAP_WINDOWS
        self._compute = ComputePlane(
            cluster, noise, window_s=self._gap_s, seed=seed, imbalance=scenario.imbalance, skew_s=skew_s
        )
        self._hang = StallPlane(cluster, skew_s, seed=seed)
        self.unanswered, self.reported = self._hang.unknown, np.ones(cluster.shape.nodes, dtype=bool)
        self.with_records = self.reported
        self._probers = Probers(self.reported, self.reported)
        self._detectors: dict[str, SimulatedDetector] = {
            name: evaluate for name in sorted(planes) if (evaluate := getattr(detectors, name)) is not None
        }
        self._states: dict[str, Any] = {name: evaluate.start() for name, evaluate in self._detectors.items()}
        self._bad: set[int] = set()
        fabric = cluster.fabric
        self._pod_of_node = np.zeros(cluster.shape.nodes, dtype=np.int64)
        self._pod_of_node[fabric.node] = fabric.leaf // cluster.shape.per_node

    def windows(
        self, from_s: float, lasting: Sequence[FaultEvent]
    ) -> Iterator[tuple[float, Callable[[], tuple[Diagnosis, ...]]]]:
        """Iterate over the observations of a window, in order, with the time at which each is known."""
        to_s = from_s + self._window_s
        path = self._congestion.advance(from_s, to_s, skew_s=self._skew_s)
        self.reported, self.with_records = self._reports(from_s, to_s, lasting)
        reported = self.reported
        self._bad = {one.at for one in lasting if one.kind is FaultKind.UPLINK}
        moments = (
            self._hang.between(from_s, to_s, reported=reported, events=lasting) if "hang" in self._detectors else ()
        )
        hangs = ((progress.at_s, partial(self._step, "hang", progress)) for progress in moments)
        late = self._gaps(from_s, lasting) if "compute" in self._detectors else ()
        gaps = ((each.to_s, partial(self._step, "compute", each)) for each in late)
        yield from merge(hangs, gaps, key=itemgetter(0))
        if "slow" in self._detectors:
            window = self._slow.window(from_s, path=path, reported=reported, events=lasting, probers=self._probers)
            yield to_s, partial(self._step, "slow", window)

    def _gaps(self, from_s: float, lasting: Sequence[FaultEvent]) -> Iterator[Gaps]:
        for at in range(GAP_WINDOWS):
            begin_s, end_s = from_s + at * self._gap_s, from_s + (at + 1) * self._gap_s
            now = [one for one in lasting if one.from_s < end_s and one.to_s > begin_s]
            yield self._compute.window(begin_s, reported=self._telemetry.with_records & self._arriving(now), events=now)

    def _step(self, name: str, window: Any) -> tuple[Diagnosis, ...]:
        self._states[name], diagnoses = self._detectors[name].step(self._states[name], window)
        return diagnoses

    def _reports(
        self, from_s: float, to_s: float, lasting: Sequence[FaultEvent]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        arriving = self._arriving(lasting)
        reported, probing = self._telemetry.reported(from_s, to_s), self._probing.reported(from_s, to_s)
        self._probers = Probers(self._probing.run, probing & arriving)
        return reported & arriving, self._telemetry.with_records & arriving

    def _arriving(self, lasting: Sequence[FaultEvent]) -> NDArray[np.bool_]:
        silent = [one.at for one in lasting if one.kind is FaultKind.SILENCE]
        return np.asarray(~np.isin(self._pod_of_node, silent))

    def congested(self, diagnosis: Diagnosis, now_s: float) -> bool:
        """Return whether congestion filled the diagnosed link or uplink within the last half minute."""
        if diagnosis.scope is Scope.UPLINK:
            named = [int(str(diagnosis.switch).rsplit("-", 1)[-1])]
        else:
            fabric = self._cluster.fabric
            edges = np.flatnonzero(
                (fabric.node[fabric.source] == diagnosis.node) & (fabric.node[fabric.target] == diagnosis.peer)
            )
            ways = (fabric.up, fabric.down, self._cluster.ack_up, self._cluster.ack_down)
            named = [int(uplink) for way in ways for uplink in way[edges] if uplink >= 0]
        bad = any(uplink in self._bad for uplink in named)  # a cable's fault shows on all links over it
        return bad or any(self._congestion.lasting(uplink, now_s - 30.0, now_s) > CONGESTED_FACTOR for uplink in named)
