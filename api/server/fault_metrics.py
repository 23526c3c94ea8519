"""Exports fault metrics: events of this process, and the stored state of diagnoses and of the quarantine policy."""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import (
    OUT_OF_SERVICE,
    Decision,
    DecisionKind,
    Guardrail,
    NodeState,
    PolicyMode,
    QuarantineState,
)

DETECTION_BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class FaultMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter(
            "fleetwright_faults_reported", "Reported diagnoses.", ["class", "scope"], registry=registry
        )
        self._detections = Histogram(
            "fleetwright_faults_detection_seconds",
            "Time from the onset of a reported fault to its diagnosis.",
            ["class"],
            buckets=DETECTION_BUCKETS_S,
            registry=registry,
        )
        self._replays = Counter(
            "fleetwright_faults_bundle_replays", "Replayed bundles, by outcome.", ["outcome"], registry=registry
        )
        self._decisions = Counter(
            "fleetwright_quarantine_decisions",
            "Decisions of the quarantine policy.",
            ["decision", "dry_run"],
            registry=registry,
        )
        self._refusals = Counter(
            "fleetwright_quarantine_refusals",
            "Refused quarantines, by guardrail.",
            ["guardrail"],
            registry=registry,
        )
        for outcome in ("same", "differs"):
            self._replays.labels(outcome)
        for kind in DecisionKind:
            for dry_run in ("no", "yes"):
                self._decisions.labels(kind.value, dry_run)
        for guardrail in Guardrail:
            self._refusals.labels(guardrail.value)
        for fault in FaultClass:
            for scope in Scope:
                self._reports.labels(fault.value, scope.value)

    def observe_report(self, diagnosis: Diagnosis) -> None:
        self._reports.labels(diagnosis.fault.value, diagnosis.scope.value).inc()
        self._detections.labels(diagnosis.fault.value).observe(max(0.0, diagnosis.detected_s - diagnosis.onset_s))

    def observe_replay(self, *, same: bool) -> None:
        self._replays.labels("same" if same else "differs").inc()

    def observe_decisions(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._decisions.labels(decision.kind.value, "yes" if decision.dry_run else "no").inc()
            guardrail = decision.reason.partition(":")[0]
            if decision.kind in (DecisionKind.REFUSE, DecisionKind.SUSPECT) and guardrail in set(Guardrail):
                self._refusals.labels(guardrail).inc()


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """Is a diagnosis that has not expired."""

    fault: FaultClass
    scope: str
    since: datetime
    node: str | None  # if the diagnosis justifies its quarantine


@dataclass(frozen=True, slots=True)
class FaultState:
    active: Sequence[ActiveFault] = ()
    mode: PolicyMode = PolicyMode.OBSERVE
    evaluated_at: datetime | None = None
    fleet: int = 0
    state: QuarantineState | None = None


def fault_metrics(found: FaultState, at: datetime) -> Iterable[Metric]:
    active = GaugeMetricFamily("fleetwright_faults_active", "Active diagnoses.", labels=["class", "scope"])
    counts = Tally((one.fault.value, one.scope) for one in found.active)
    for labels, count in sorted(counts.items()):
        active.add_metric(list(labels), count)
    yield active
    mode = GaugeMetricFamily("fleetwright_quarantine_mode", "1 for the mode of the policy.", labels=["mode"])
    for each in PolicyMode:
        mode.add_metric([each.value], each is found.mode)
    yield mode
    if found.evaluated_at is not None and found.state is not None:
        yield from _quarantine(found, found.evaluated_at, found.state, at)


def _quarantine(found: FaultState, evaluated_at: datetime, state: QuarantineState, at: datetime) -> Iterable[Metric]:
    age_s = max(0.0, (at - evaluated_at).total_seconds())
    yield GaugeMetricFamily(
        "fleetwright_quarantine_evaluation_age_seconds", "Time since the last evaluation.", value=age_s
    )
    yield GaugeMetricFamily(
        "fleetwright_quarantine_breaker_open", "1 while the circuit breaker is open.", value=state.breaker.open
    )
    nodes = GaugeMetricFamily(
        "fleetwright_quarantine_nodes", "Nodes by state; dry_run: the state is simulated.", labels=["state", "dry_run"]
    )
    counts = Tally((record.state, record.dry_run) for record in state.nodes.values())
    serving = found.fleet - sum(count for (each, _dry), count in counts.items() if each is not NodeState.SERVING)
    for each in NodeState:
        real = serving if each is NodeState.SERVING else counts[each, False]
        nodes.add_metric([each.value, "no"], max(0, real))
        nodes.add_metric([each.value, "yes"], 0 if each is NodeState.SERVING else counts[each, True])
    yield nodes
    out = GaugeMetricFamily(
        "fleetwright_quarantine_node",
        "1 for the state of a node that is not in service; dry_run: the state is simulated.",
        labels=["node", "state", "dry_run"],
    )
    for name, record in sorted(state.nodes.items()):
        if record.state is not NodeState.SERVING:
            out.add_metric([name, record.state.value, "yes" if record.dry_run else "no"], 1)
    yield out
    in_service_s = [
        (at - one.since).total_seconds()
        for one in found.active
        if one.node is not None and not _is_out(state, one.node)
    ]
    yield GaugeMetricFamily(
        "fleetwright_faults_unquarantined_seconds",
        "Age of the oldest active diagnosis of a node that is still in service; 0: there is none.",
        value=max(in_service_s, default=0.0),
    )


def _is_out(state: QuarantineState, node: str) -> bool:
    record = state.nodes.get(node)
    return record is not None and record.state in OUT_OF_SERVICE
