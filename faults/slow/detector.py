"""The live slow detector: networks and ranks that slow the job, and workload effects that resemble them."""

from collections.abc import Hashable, Iterator, Sequence
from math import floor
from typing import Final

import numpy as np

from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.observations import Collective, Heartbeat, Observation, PointToPoint, Probe, ProbeReturned, Process
from faults.probe_dedup import ProbeDeduplicator
from faults.slow import diagnoses
from faults.slow.compute_gaps import ComputeGaps, Late
from faults.slow.merge import Slow
from faults.slow.network_detector import Evaluated, NetworkDetector
from faults.slow.one_way_delays import Delays
from faults.slow.persistence import Confirmed, Persistence
from faults.slow.probe_likelihood import ProbeEvidence
from faults.slow.queue_location import LEG_NATS, MIN_BYTES, SECOND_LEG, Waiting, Waits
from faults.slow.settings import SlowSettings
from faults.slow.sockets import STORED, Sockets
from faults.slow.steps import Harm, Steps, harm
from faults.slow.workload import MIN_STEPS, CpuWaits, Lost, lost

STALLED_STEPS: Final = 5.0  # of usual length without a step: a hang, which is not evaluated here
MIN_STALL_S: Final = 1.5
MIN_USUAL: Final = 10  # steps
EARLY: Final = 0.9  # of a period, within which an early call counts as on time
BASELINE_AGE: Final = 2.0  # windows, after which a message counts as usual: long enough for a suspicion to arise
EXPLAINED: Final = 0.75  # share of the log of longer steps that a link beside a node without counters must explain
CPU_WAIT_SHARE: Final = 0.5  # of a rank's extra time, spent waiting for a core: then the host's load is the cause
SILENT_S: Final = 3.0  # an agent reports a process each second
TOGETHER_S: Final = 60.0  # within which the edges of a slow switch become suspects, one after the other
FEW: Final = 3  # steps, in the shorter window that measures harm


class SlowDetector:
    """A detector that stores observations in the order in which they became known, and evaluates every `every_s`."""

    def __init__(self, job: Job, settings: SlowSettings | None = None) -> None:
        s = settings or SlowSettings()
        ranks = len(job.rank_node)
        self._job, self._settings = job, s
        nodes = job.nodes if job.nodes <= s.max_nodes else 0  # nodes whose pairs are evaluated
        self._sockets = Sockets(nodes, 2 * s.window_s + 1.0)
        self._wires = NetworkDetector(self._sockets, s)
        self._delays = Delays(nodes, keep_s=2 * BASELINE_AGE * s.window_s, baseline_age_s=BASELINE_AGE * s.window_s)
        self._probe_evidence = ProbeEvidence(
            nodes, keep_s=2 * BASELINE_AGE * s.window_s, baseline_age_s=BASELINE_AGE * s.window_s
        )
        self._ends = ProbeDeduplicator(nodes, max_pairs=nodes * nodes)
        self._waiting = Waiting(self._sockets, s)
        self._steps, self._gaps, self._cores = Steps(ranks), ComputeGaps(ranks, s), CpuWaits(ranks)
        self._findings: Persistence[Slow] = Persistence(1, 1, 2 * s.every_s)  # before the harm gate
        self._slow: Persistence[diagnoses.NetworkFault] = Persistence(s.hits, s.of, s.gone_s)
        self._late: Persistence[Late] = Persistence(s.late_hits, s.of, s.gone_s)
        self._foreign: Persistence[tuple[int, int]] = Persistence(s.hits, s.of, s.gone_s)
        self._unread: Persistence[int] = Persistence(s.hits, s.of, s.gone_s)
        self._lost: Persistence[Lost] = Persistence(s.hits, s.of, s.gone_s)
        self._due_s: float | None = None  # the next evaluation
        self._onset_s: float | None = None  # later steps are not in the baseline
        self._named: dict[Hashable, diagnoses.Named] = {}  # of the active diagnoses
        self._diagnoses: tuple[Diagnosis, ...] = ()

    def observe(self, observation: Observation) -> None:
        if self._due_s is None:
            self._due_s = observation.at_s + self._settings.warm_up_s + self._settings.window_s
        if isinstance(observation.values, STORED):
            self._sockets.observe(observation)  # of nodes beyond the detector's size
            return
        if isinstance(observation.values, Process):
            self._cores.observe(observation)
        if isinstance(observation.values, Collective | Heartbeat):
            self._steps.observe(observation)
        if isinstance(observation.values, Collective | PointToPoint):
            self._gaps.observe(observation)
        if isinstance(observation.values, PointToPoint) and self._sockets.nodes:
            self._delays.observe(observation)
        if isinstance(observation.values, Probe | ProbeReturned) and self._sockets.nodes:
            reading = self._ends.reading(observation)
            if reading is not None:
                self._probe_evidence.observe(reading)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        s = self._settings
        if self._due_s is None:
            return self._diagnoses
        due = floor((now_s - self._due_s) / s.every_s + 1.0 - EARLY)
        if due < 0 or self._stalled(now_s):
            return self._diagnoses
        self._due_s += (due + 1) * s.every_s  # the grid does not move, however late this evaluation is
        late = self._without_cpu_waits(self._gaps.late(self._step_s(now_s)), now_s)
        evaluated = self._evaluate(now_s) if self._sockets.nodes else None
        self._slow.update(now_s, {} if evaluated is None else self._harmful(evaluated, list(late.values()), now_s))
        self._late.update(now_s, dict(late.items()))
        self._explanations(evaluated, now_s)
        self._mark_onset(now_s)
        self._diagnoses = tuple(self._diagnosis(now_s))
        return self._diagnoses

    def _evaluate(self, now_s: float) -> Evaluated | None:
        suspected, baseline_age_s = self._suspected(), BASELINE_AGE * self._settings.window_s
        self._delays.extend_baseline(now_s, suspected=suspected)
        self._waiting.take(now_s, suspected=suspected, baseline_age_s=baseline_age_s)
        probed = self._probe_evidence.evaluate(now_s, suspected=suspected)
        return self._wires.evaluate(
            now_s, self._delays, probed, suspected=suspected, false_per_window=self._price(now_s)
        )

    def _without_cpu_waits(self, late: Sequence[Late], now_s: float) -> dict[int, Late]:
        """Leave out ranks that wait for a core, or whose wait is about to be reported."""
        step_s, found = self._step_s(now_s), dict[int, Late]()
        for each in late:
            waited = self._cores.waited(each.rank, each.since_s, now_s)
            lost_s = 0.0 if waited is None else each.extra_s * (waited.until_s - waited.from_s) / step_s
            if waited is None or waited.until_s < now_s - SILENT_S or waited.seconds < CPU_WAIT_SHARE * lost_s:
                found[each.rank] = each
        return found

    def _suspected(self) -> bool:
        return self._slow.suspected() or self._late.suspected()

    def _stalled(self, now_s: float) -> bool:
        last_s = self._steps.last_s()
        return last_s is not None and now_s - last_s > max(MIN_STALL_S, STALLED_STEPS * self._step_s(last_s))

    def _step_s(self, now_s: float) -> float:
        recent = self._steps.between(now_s - self._settings.window_s, now_s)
        return float(np.median(recent)) if recent.size else 0.0

    def _mark_onset(self, now_s: float) -> None:
        """End the step baseline a window before the first suspicion, and continue it if the suspicion was unfounded."""
        if not self._suspected():
            self._onset_s = None
        elif self._onset_s is None:
            self._onset_s = now_s - self._settings.window_s

    def _explanations(self, evaluated: Evaluated | None, now_s: float) -> None:
        self._foreign.update(now_s, {} if evaluated is None else {pair: pair for pair in evaluated.foreign})
        self._unread.update(now_s, {} if evaluated is None else {node: node for node in evaluated.unread})
        gaps_s = self._gaps.gaps_s(4 * MIN_STEPS)
        self._lost.update(now_s, {each.cause: each for each in lost(gaps_s, self._step_s(now_s))})

    def _harm(self, since_s: float, now_s: float) -> Harm | None:
        """Return step time against its baseline; None without a baseline.

        Of the last half window, or of all steps since the suspicion if they are more certain.
        """
        s = self._settings
        first_s = self._steps.first_s
        if first_s is None:
            return None
        until_s = now_s - 2 * s.window_s if self._onset_s is None else self._onset_s
        usual = self._steps.between(first_s + s.warm_up_s, until_s)
        if usual.size < MIN_USUAL:
            return None
        starts = {min(since_s, now_s - s.window_s / 2), now_s - s.window_s / 2}
        return min((harm(self._steps.recent(start, now_s, FEW), usual) for start in starts), key=lambda h: h.chance)

    def _price(self, now_s: float) -> float:
        """Return the accepted chance of a false entity per window: higher if steps are longer as well."""
        s = self._settings
        measured = self._harm(now_s - s.window_s, now_s)
        if measured is None or measured.ratio < s.min_harm or self._slow.confirmed():
            return s.false_per_window
        return min(s.false_given_harm, s.false_per_window / max(measured.chance, 1e-9))

    def _harmful(
        self, evaluated: Evaluated, late: Sequence[Late], now_s: float
    ) -> dict[Hashable, diagnoses.NetworkFault]:
        self._findings.update(now_s, {slow.key: slow for slow in evaluated.slow})
        if not evaluated.slow or evaluated.foreign:  # the cost of foreign bytes is not the network's
            return {}
        s = self._settings
        since_s = min(each.first_s for each in self._findings.confirmed())
        by_ranks = sum(each.harm for each in late)  # of the step, not the network's
        measured = self._harm(since_s, now_s)
        measured = None if measured is None else measured.without(by_ranks)
        waits = self._waiting.window(
            now_s - s.window_s, now_s, now_mbit=evaluated.bandwidth_mbit, usual_mbit=evaluated.usual_mbit,
            clock_offsets_s=self._delays.clock_offsets_s(),
        )  # fmt: skip
        passed: dict[Hashable, diagnoses.NetworkFault] = {}
        for slow in sorted(evaluated.slow, key=lambda each: -each.saved):
            ratio = self._step_ratio(slow, measured)
            if ratio is None or (measured is not None and _may_wait_for_others(slow, measured, evaluated.unobserved)):
                continue
            one_way_evidence, own = self._one_way_evidence(slow, waits), slow.own and measured is not None
            wire = diagnoses.NetworkFault(
                slow, _likely(slow, waits), one_way_evidence, ratio, own, evaluated.unobserved
            )
            passed.setdefault(self._site(slow), wire)
        return passed

    def _site(self, slow: Slow) -> Hashable:
        """Suspects at one of its ends: of two slow edges at one node one is held up by the other."""
        for key, wire in self._slow.open().items():
            if slow.entity.ends & wire.slow.entity.ends:
                return key
        return slow.key

    def _one_way_evidence(self, slow: Slow, waits: Waits) -> tuple[str, ...]:
        node = slow.entity.node
        return (
            (diagnoses.WAITING,) * (max(waits.sides(node)) >= MIN_BYTES)
            + (diagnoses.PASSES,) * self._delays.has_history
            + (diagnoses.PROBES,) * slow.probed
        )

    def _step_ratio(self, slow: Slow, measured: Harm | None) -> float | None:
        """Return by how much the fault lengthens steps, if that is enough and its slowdown can explain it."""
        s = self._settings
        implied = 1.0 / (1.0 - slow.saved)
        if slow.probed and measured is not None:  # slow beyond doubt; steps only need not to refute it
            most = measured.log_ratio + 1.645 * measured.error
            if implied >= s.min_harm and most >= np.log(s.min_harm):
                return max(1.0, measured.ratio)
        if not slow.own or measured is None:  # steps cannot show a slowness older than their start
            return implied if implied >= s.min_implied_harm else None
        sure = measured.chance < s.chance_of_harm or (measured.log_ratio > 0 and implied >= s.plain_harm)
        return measured.ratio if sure and not slow.probed and min(measured.ratio, implied) >= s.min_harm else None

    def _diagnosis(self, now_s: float) -> Iterator[Diagnosis]:
        wires = self._slow.confirmed()
        self._named = {each.key: self._name(each, now_s) for each in wires}
        for each in wires:  # a switch may be the cause of several at once; with known leaves, the joint fit decides
            alone = self._job.fabric is not None or self._slow.alone(each.key, within_s=TOGETHER_S)
            yield diagnoses.of_wire(each, self._named[each.key], self._settings.window_s, alone=alone)
        yield from (
            diagnoses.of_rank(each, self._job.rank_node[each.found[-1].rank]) for each in self._late.confirmed()
        )
        yield from (diagnoses.of_foreign(each) for each in self._foreign.confirmed())
        yield from (diagnoses.of_unread(each) for each in self._unread.confirmed())
        yield from (diagnoses.of_workload(each) for each in self._lost.confirmed())

    def _name(self, wire: Confirmed[diagnoses.NetworkFault], now_s: float) -> diagnoses.Named:
        before = self._named.get(wire.key)
        if before is None:
            return diagnoses.Named(*diagnoses.named(wire.found)[:2], at_s=wire.confirmed_s)
        return before.updated(wire.found, now_s=now_s)


def _may_wait_for_others(slow: Slow, measured: Harm, unobserved: frozenset[int]) -> bool:
    """Return whether the fault explains so little of the longer steps that it may wait for an unobserved edge."""
    if not unobserved - slow.entity.ends or slow.entity.peer is None:
        return False
    return bool(-np.log(1.0 - slow.saved) < EXPLAINED * measured.log_ratio)


def _likely(slow: Slow, waits: Waits) -> dict[diagnoses.Hypothesis, float]:
    """Return the log likelihood of all hypotheses about one fault: of the fit and of the queue location."""
    found: dict[diagnoses.Hypothesis, float] = {}
    for entity, nats in slow.log_likelihoods.items():
        extra = waits.nats(entity.node, entity.way)
        share, peer = waits.legs(entity.node)
        if entity.peer is None and peer is not None:
            extra += LEG_NATS if share >= SECOND_LEG else -LEG_NATS
        found[entity.node, entity.peer, entity.way] = nats + extra
    return found
