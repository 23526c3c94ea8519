"""Faults as metrics: what this process was told and decided, and what the store says stands now."""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from faults.diagnosis import FaultClass, Verdict
from faults.quarantine import Act, Decision, IsolationState, Mode, Refusal, Standing
from faults.quarantine.states import OUT

DETECTION_BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class FaultMetrics:
    """What this process has done about faults."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter(
            "fleetwright_fault_reports", "Verdicts reported.", ["class", "scope"], registry=registry
        )
        self._detections = Histogram(
            "fleetwright_fault_detection_seconds",
            "From the onset of a reported fault to its verdict.",
            ["class"],
            buckets=DETECTION_BUCKETS_S,
            registry=registry,
        )
        self._replays = Counter(
            "fleetwright_fault_replays", "Bundles replayed, by outcome.", ["outcome"], registry=registry
        )
        self._decisions = Counter(
            "fleetwright_isolation_decisions", "Decisions of the policy.", ["act", "dry_run"], registry=registry
        )
        self._refusals = Counter(
            "fleetwright_isolation_refusals",
            "Nodes that stayed, by the rule that said no.",
            ["rule"],
            registry=registry,
        )
        for outcome in ("same", "differs"):
            self._replays.labels(outcome)
        for act in Act:
            self._decisions.labels(act.value, "no")

    def observe_report(self, verdict: Verdict) -> None:
        """Count one reported verdict."""
        self._reports.labels(verdict.fault.value, verdict.scope.value).inc()
        self._detections.labels(verdict.fault.value).observe(max(0.0, verdict.detected_s - verdict.onset_s))

    def observe_replay(self, *, same: bool) -> None:
        """Count one replayed bundle."""
        self._replays.labels("same" if same else "differs").inc()

    def observe_decisions(self, decisions: Iterable[Decision]) -> None:
        """Count what a look decided."""
        for decision in decisions:
            self._decisions.labels(decision.act.value, "yes" if decision.dry_run else "no").inc()
            rule = decision.reason.partition(":")[0]
            if decision.act in (Act.REFUSE, Act.SUSPECT) and rule in set(Refusal):
                self._refusals.labels(rule).inc()


@dataclass(frozen=True, slots=True)
class Believed:
    """A verdict that is believed now."""

    fault: FaultClass
    scope: str
    since: datetime
    node: str | None  # whose isolation it would justify


@dataclass(frozen=True, slots=True)
class FaultState:
    """Verdicts believed now, and what the isolation policy remembers."""

    believed: Sequence[Believed] = ()
    mode: Mode = Mode.OBSERVE
    looked_at: datetime | None = None
    fleet: int = 0
    state: IsolationState | None = None


def fault_metrics(found: FaultState, at: datetime) -> Iterable[Metric]:
    """All of it."""
    believed = GaugeMetricFamily(
        "fleetwright_fault_verdicts_believed", "Verdicts that are believed now.", labels=["class", "scope"]
    )
    counts = Tally((one.fault.value, one.scope) for one in found.believed)
    for labels, count in sorted(counts.items()):
        believed.add_metric(list(labels), count)
    yield believed
    mode = GaugeMetricFamily("fleetwright_isolation_mode", "1 for the mode of the policy.", labels=["mode"])
    for each in Mode:
        mode.add_metric([each.value], each is found.mode)
    yield mode
    if found.looked_at is not None and found.state is not None:
        yield from _isolation(found, found.looked_at, found.state, at)


def _isolation(found: FaultState, looked_at: datetime, state: IsolationState, at: datetime) -> Iterable[Metric]:
    age_s = max(0.0, (at - looked_at).total_seconds())
    yield GaugeMetricFamily("fleetwright_isolation_look_age_seconds", "Since the last look at the fleet.", value=age_s)
    yield GaugeMetricFamily(
        "fleetwright_isolation_breaker_open", "1 while the breaker stops isolations.", value=state.breaker.open
    )
    nodes = GaugeMetricFamily(
        "fleetwright_isolation_nodes", "Nodes by standing; dry run: only said to be.", labels=["standing", "dry_run"]
    )
    counts = Tally((record.standing, record.dry_run) for record in state.nodes.values())
    serving = found.fleet - sum(count for (standing, _dry), count in counts.items() if standing is not Standing.SERVING)
    for standing in Standing:
        in_earnest = serving if standing is Standing.SERVING else counts[standing, False]
        nodes.add_metric([standing.value, "no"], max(0, in_earnest))
        nodes.add_metric([standing.value, "yes"], 0 if standing is Standing.SERVING else counts[standing, True])
    yield nodes
    still_in_s = [
        (at - one.since).total_seconds()
        for one in found.believed
        if one.node is not None and not _is_out(state, one.node)
    ]
    yield GaugeMetricFamily(
        "fleetwright_fault_unisolated_seconds",
        "Since the oldest believed verdict against a node that is still in service; 0: there is none.",
        value=max(still_in_s, default=0.0),
    )


def _is_out(state: IsolationState, node: str) -> bool:
    record = state.nodes.get(node)
    return record is not None and record.standing in OUT
