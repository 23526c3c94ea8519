"""What a watcher counts, on /metrics of its own process."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.fault_monitor.api_reporter import OUTCOMES
from deploy.fault_monitor.outputs import OUTCOMES as BUNDLED
from faults.diagnosis import Diagnosis, FaultClass

_DECISION_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
REFUSALS: Final = ("malformed", "base", "node")


class MonitorMetrics:
    """Of one job, on the registry of whoever serves it."""

    def __init__(self, registry: CollectorRegistry, *, job: str) -> None:
        self._job = job

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"fleetwright_faults_{name}", text, ["job"], registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fleetwright_faults_{name}", text, ["job", *labels], registry=registry)

        self._observations = counter("observations", "Observations that were taken in.")
        self._malformed = counter("malformed", "Observations that were left out.")
        self._refused = counter("refused_batches", "Batches that were not taken.", "reason")
        self._bytes = counter("batch_bytes", "Bytes of the batches that were taken.")
        self._diagnoses = counter("verdicts", "Verdicts, each fault once.", "class", "scope")
        self._isolations = counter("isolations_recommended", "Verdicts whose evidence would justify an isolation.")
        self._failures = counter("judge_failures", "Judgements that raised.")
        self._reports = counter("reports", "Reports to the service, by what came of them.", "outcome")
        self._bundles = counter("bundles", "Bundles, by whether they give again what they were written for.", "outcome")
        self._agents = gauge("agents", "Agents that were heard.")
        self._lost = gauge("lost_agents", "Agents that were heard, and are not any more.")
        self._probers = gauge("probers", "Probers of their own process that were heard.")
        self._lost_probers = gauge("lost_probers", "Probers that were heard, and are not any more.")
        self._believed = gauge("believed", "Faults that are believed now.")
        self._skew = gauge("clock_skew_seconds", "The largest skew of a node's clock that is corrected.")
        self._decisions = Histogram(
            "fleetwright_faults_decision_seconds",
            "Of taking in what came and judging.",
            ["job"],
            buckets=_DECISION_BUCKETS_S,
            registry=registry,
        )
        for plain in (self._observations, self._malformed, self._bytes, self._isolations, self._failures):
            plain.labels(job)
        for reason in REFUSALS:
            self._refused.labels(job, reason)
        for outcome in OUTCOMES:
            self._reports.labels(job, outcome)
        for outcome in BUNDLED:
            self._bundles.labels(job, outcome)
        for fault in FaultClass:
            self._diagnoses.labels(job, fault.value, "node")

    def took(self, *, observations: int, malformed: int, size_bytes: int) -> None:
        """A batch was taken."""
        self._observations.labels(self._job).inc(observations)
        self._malformed.labels(self._job).inc(malformed)
        self._bytes.labels(self._job).inc(size_bytes)

    def refused(self, reason: str) -> None:
        """A batch was not."""
        self._refused.labels(self._job, reason).inc()

    def told(self, diagnosis: Diagnosis, *, new: bool, isolates: bool) -> None:
        """A fault was named: for the first time, or again; each is counted once, its isolation too."""
        if new:
            self._diagnoses.labels(self._job, diagnosis.fault.value, diagnosis.scope.value).inc()
        if isolates:
            self._isolations.labels(self._job).inc()

    def reported(self, outcome: str) -> None:
        """Something came of a report."""
        self._reports.labels(self._job, outcome).inc()

    def bundled(self, outcome: str) -> None:
        """A bundle was written, or not."""
        self._bundles.labels(self._job, outcome).inc()

    def judged(self, duration_s: float, *, believed: int) -> None:
        """A judgement was made."""
        self._decisions.labels(self._job).observe(duration_s)
        self._believed.labels(self._job).set(believed)

    def failed(self) -> None:
        """A judgement raised."""
        self._failures.labels(self._job).inc()

    def agents(self, *, heard: int, lost: int, skew_s: float) -> None:
        """How the agents are."""
        self._agents.labels(self._job).set(heard)
        self._lost.labels(self._job).set(lost)
        self._skew.labels(self._job).set(skew_s)

    def probers(self, *, heard: int, lost: int) -> None:
        """How those are that are no part of a recorder."""
        self._probers.labels(self._job).set(heard)
        self._lost_probers.labels(self._job).set(lost)
