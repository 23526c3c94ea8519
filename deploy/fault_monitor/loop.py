"""The loop of one fault monitor: it evaluates the received observations in the order of their times.

The loop only observes.  An evaluation that raises an error is logged and counted, and a new monitor starts, because the
state of the old one can be the cause.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final, TextIO

import structlog
from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from deploy.fault_monitor.api_reporter import ApiReporter
from deploy.fault_monitor.ingest import Ingest
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import BundleFolder, Change, DiagnosisChange, DiagnosisChanges, JsonLines
from deploy.telemetry.batch_codec import BaseMissingError, WireError
from faults.bundle import MAX_CALLS, CallLog
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, Key, key_of
from faults.observations import Observation

log = structlog.get_logger()

MAX_WAITING: Final = 200_000  # observations between two evaluations; more are skipped and counted
MAX_SHOWN: Final = 1000  # diagnoses
BUNDLE_AFTER_S: Final = 5.0  # so that the bundle has the observations after the first diagnosis too
MAX_LOG: Final = MAX_CALLS


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorClock:
    """Wall time for the times of agents, monotonic time for our own."""

    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic


class MonitorLoop:
    def __init__(
        self,
        file: JobConfig,
        *,
        lines: JsonLines,
        metrics: MonitorMetrics,
        bundles: BundleFolder | None,
        zero_s: float,
        clock: MonitorClock | None = None,
        reporter: ApiReporter | None = None,
    ) -> None:
        self.file = file
        self.metrics = metrics
        self.evaluated_s = float("-inf")
        self._job = file.job()
        self._ingest = Ingest(self._job, zero_s=zero_s)
        self.reporter = reporter
        self._lines, self._bundles = lines, bundles
        self._zero_s = zero_s
        self._clock = clock or MonitorClock()
        self._waiting: list[Observation] = []
        self._monitor = FaultMonitor(self._job, file.settings)
        self._changes = DiagnosisChanges()
        self._before: list[Diagnosis] = []  # of monitors that failed
        self._calls = CallLog(MAX_LOG)
        self._bundle_due_s: float | None = None
        self._bundle_name = ""
        self._bundle_for: set[tuple[Key, float]] = set()
        self._writing: set[asyncio.Task[None]] = set()

    def receive(self, body: bytes) -> None:
        try:
            taken = self._ingest.take(body, received_s=self._clock.now_s(), steady_s=self._clock.steady_s())
        except BaseMissingError:
            self.metrics.count_refusal("base")
            raise
        except WireError:
            self.metrics.count_refusal("malformed")
            raise
        free = max(0, MAX_WAITING - len(self._waiting))
        skipped = max(0, len(taken.observations) - free)
        self._waiting += taken.observations[:free]
        self.metrics.count_batch(
            observations=len(taken.observations) - skipped,
            malformed=taken.malformed + skipped,
            size_bytes=len(body),
        )

    async def run(self) -> None:
        period_s = self.file.settings.judge_s
        while True:
            started_s = self._clock.steady_s()
            self.evaluate()
            await asyncio.sleep(max(0.0, period_s - (self._clock.steady_s() - started_s)))

    def evaluate(self) -> tuple[Diagnosis, ...]:
        started_s = self._clock.steady_s()
        now_s = self._clock.now_s() - self._zero_s
        try:
            active = self._evaluate(now_s)
        except Exception:
            log.exception("evaluation_failed", job=self.file.name)
            self.metrics.count_failure()
            self._restart()
            active = ()
        if self.reporter is not None:
            self.reporter.refresh(active)
        self.evaluated_s = self._clock.steady_s()
        self.metrics.observe_evaluation(self.evaluated_s - started_s, active=len(active))
        self._count_agents()
        self._write_bundle(now_s)
        return active

    @property
    def diagnoses(self) -> list[Diagnosis]:
        return [*self._before, *self._monitor.diagnoses()][-MAX_SHOWN:]

    def is_alive(self) -> bool:
        return self._clock.steady_s() - self.evaluated_s <= max(5.0, 10 * self.file.settings.judge_s)

    async def finish(self) -> None:
        self._write_bundle(float("inf"))
        await asyncio.gather(*self._writing)

    def _evaluate(self, now_s: float) -> tuple[Diagnosis, ...]:
        observations, self._waiting = sorted(self._waiting, key=attrgetter("at_s")), []
        for observation in observations:
            self._calls.add(observation)
            self._monitor.observe(observation)
        self._calls.add(now_s)
        active = self._monitor.evaluate(now_s)
        for change in self._changes.of(active):
            self._publish(change, now_s)
        return active

    def _count_agents(self) -> None:
        agents, steady_s = self._ingest.agents, self.evaluated_s
        every = (*agents.recorders.values(), *agents.probers.values())
        skew_s = max((abs(agent.skew.ahead_s) for agent in every), default=0.0)
        self.metrics.set_agents(known=len(agents.recorders), lost=len(agents.lost(steady_s=steady_s)), skew_s=skew_s)
        self.metrics.set_probers(known=len(agents.probers), lost=len(agents.lost_probers(steady_s=steady_s)))

    def _restart(self) -> None:
        self._write_bundle(float("inf"))  # of the calls before the error
        self._before = self.diagnoses
        self._monitor, self._changes = FaultMonitor(self._job, self.file.settings), DiagnosisChanges()
        self._calls = CallLog(MAX_LOG)

    def _publish(self, item: DiagnosisChange, now_s: float) -> None:
        diagnosis = item.diagnosis
        self._lines.write(diagnosis, item.change)
        if self.reporter is not None:
            self.reporter.report(diagnosis, list(self._calls), dropped=self._calls.dropped)
        self.metrics.count_diagnosis(diagnosis, new=item.change is Change.NEW, isolates=item.isolates)
        self._bundle_for.add((key_of(diagnosis), diagnosis.detected_s))
        if self._bundle_due_s is None:
            self._bundle_due_s = now_s + BUNDLE_AFTER_S
            place = "" if diagnosis.node is None else f"-{diagnosis.node}"
            self._bundle_name = f"{self._zero_s + now_s:.0f}-{diagnosis.fault.value}-{diagnosis.scope.value}{place}"

    def _write_bundle(self, now_s: float) -> None:
        if self._bundle_due_s is None or now_s < self._bundle_due_s:
            return
        live = [each for each in self._monitor.diagnoses() if (key_of(each), each.detected_s) in self._bundle_for]
        self._bundle_due_s, self._bundle_for = None, set()
        if self._bundles is None:
            return
        calls = list(self._calls)
        writing = self._bundles.write(self._bundle_name, calls, dropped=self._calls.dropped, live=live)
        task = asyncio.get_running_loop().create_task(self._counted(writing))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _counted(self, writing: Coroutine[None, None, str]) -> None:
        self.metrics.count_bundle(await writing)


def new_monitor_loop(
    file: JobConfig,
    *,
    registry: CollectorRegistry,
    out: TextIO,
    bundles: Path | None = None,
    client: AsyncClient | None = None,
    names: Sequence[str] = (),
) -> MonitorLoop:
    """Build a loop that writes to `out`, and reports to the API of `client` with these names of the job's nodes."""
    zero_s, metrics, reporter = time.time(), MonitorMetrics(registry, job=file.name), None
    if client is not None:
        reporter = ApiReporter(client=client, file=file, names=names, zero_s=zero_s, count=metrics.count_report)
    return MonitorLoop(
        file,
        lines=JsonLines(out, job=file.name, zero_s=zero_s),
        metrics=metrics,
        bundles=BundleFolder(bundles, job=file.job(), settings=file.settings) if bundles else None,
        zero_s=zero_s,
        reporter=reporter,
    )
