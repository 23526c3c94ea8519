"""Metrics of a fault monitor."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.fault_monitor.api_reporter import OUTCOMES
from deploy.fault_monitor.outputs import OUTCOMES as BUNDLE_OUTCOMES
from faults.diagnosis import Diagnosis, FaultClass

_EVALUATION_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
REFUSALS: Final = ("malformed", "base", "node")
LABEL: Final = "training_job"  # Prometheus sets `job` to the name of the scraped pods


class MonitorMetrics:
    def __init__(self, registry: CollectorRegistry, *, job: str) -> None:
        self._job = job

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"fleetwright_faults_{name}", text, [LABEL], registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fleetwright_faults_{name}", text, [LABEL, *labels], registry=registry)

        self._observations = counter("observations", "Accepted observations.")
        self._malformed = counter("malformed_observations", "Skipped observations.")
        self._refused = counter("refused_batches", "Refused batches.", "reason")
        self._bytes = counter("batch_bytes", "Bytes of the accepted batches.")
        self._diagnoses = counter("diagnoses", "Diagnosed faults, each once.", "class", "scope")
        self._justified = counter("quarantines_justified", "Faults whose evidence justifies a quarantine, each once.")
        self._failures = counter("evaluation_failures", "Evaluations that raised an error.")
        self._reports = counter("reports", "Reports to the API, by outcome.", "outcome")
        self._bundles = counter("bundles", "Bundles, by whether they give the live diagnoses again.", "outcome")
        self._agents = gauge("agents", "Recorders that have sent a batch.")
        self._lost = gauge("lost_agents", "Recorders that have become silent.")
        self._probers = gauge("probers", "Separate prober processes that have sent a batch.")
        self._lost_probers = gauge("lost_probers", "Prober processes that have become silent.")
        self._active = gauge("monitor_active", "Faults that are active now, as this monitor diagnoses them.")
        self._skew = gauge("clock_skew_seconds", "The largest corrected skew of a node's clock.")
        self._durations = Histogram(
            "fleetwright_faults_evaluation_duration_seconds",
            "Duration of an evaluation.",
            [LABEL],
            buckets=_EVALUATION_BUCKETS_S,
            registry=registry,
        )
        for plain in (self._observations, self._malformed, self._bytes, self._justified, self._failures):
            plain.labels(job)
        for reason in REFUSALS:
            self._refused.labels(job, reason)
        for outcome in OUTCOMES:
            self._reports.labels(job, outcome)
        for outcome in BUNDLE_OUTCOMES:
            self._bundles.labels(job, outcome)
        for fault in FaultClass:
            self._diagnoses.labels(job, fault.value, "node")

    def count_batch(self, *, observations: int, malformed: int, size_bytes: int) -> None:
        self._observations.labels(self._job).inc(observations)
        self._malformed.labels(self._job).inc(malformed)
        self._bytes.labels(self._job).inc(size_bytes)

    def count_refusal(self, reason: str) -> None:
        self._refused.labels(self._job, reason).inc()

    def count_diagnosis(self, diagnosis: Diagnosis, *, new: bool, isolates: bool) -> None:
        """Count a published diagnosis; each fault counts once, and once as justified."""
        if new:
            self._diagnoses.labels(self._job, diagnosis.fault.value, diagnosis.scope.value).inc()
        if isolates:
            self._justified.labels(self._job).inc()

    def count_report(self, outcome: str) -> None:
        self._reports.labels(self._job, outcome).inc()

    def count_bundle(self, outcome: str) -> None:
        self._bundles.labels(self._job, outcome).inc()

    def observe_evaluation(self, duration_s: float, *, active: int) -> None:
        self._durations.labels(self._job).observe(duration_s)
        self._active.labels(self._job).set(active)

    def count_failure(self) -> None:
        self._failures.labels(self._job).inc()

    def set_agents(self, *, known: int, lost: int, skew_s: float) -> None:
        self._agents.labels(self._job).set(known)
        self._lost.labels(self._job).set(lost)
        self._skew.labels(self._job).set(skew_s)

    def set_probers(self, *, known: int, lost: int) -> None:
        self._probers.labels(self._job).set(known)
        self._lost_probers.labels(self._job).set(lost)
