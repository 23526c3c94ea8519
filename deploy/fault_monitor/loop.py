"""The loop of one job's watcher: what came is seen in the order of its times, then judged, as often as agents look.

It only observes.  A judgement that fails is logged and counted; after it a new watcher begins, for the old one's memory
may be what failed.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

import structlog

from deploy.fault_monitor.api_reporter import ApiReporter
from deploy.fault_monitor.diagnosis_changes import Change, DiagnosisChange, DiagnosisChanges
from deploy.fault_monitor.ingest import Ingest
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import BundleFolder, JsonLines
from deploy.telemetry.batch_codec import BaseMissingError, WireError
from faults.bundle import MAX_ACTS, Tape
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, Key, key_of
from faults.observations import Observation

log = structlog.get_logger()

MAX_WAITING: Final = 200_000  # observations between two judgements; a flood is left out and counted
MAX_SHOWN: Final = 1000  # verdicts
BUNDLE_AFTER_S: Final = 5.0  # so that what follows the first verdict is in the bundle too
MAX_TAPE: Final = MAX_ACTS


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorClock:
    """Wall time for what agents say, steady time for what we do."""

    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic


class MonitorLoop:
    """One job under watch."""

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
        self.judged_s = float("-inf")
        self._job = file.job()
        self._intake = Ingest(self._job, zero_s=zero_s)
        self._lines, self._bundles, self._reporter = lines, bundles, reporter
        self._zero_s = zero_s
        self._clock = clock or MonitorClock()
        self._waiting: list[Observation] = []
        self._watcher = FaultMonitor(self._job, file.settings)
        self._news = DiagnosisChanges()  # of this watcher's verdicts
        self._before: list[Diagnosis] = []  # of watchers that failed
        self._tape = Tape(MAX_TAPE)
        self._bundle_due_s: float | None = None
        self._bundle_name = ""
        self._bundle_for: set[tuple[Key, float]] = set()
        self._writing: set[asyncio.Task[None]] = set()

    def take(self, body: bytes) -> None:
        """One batch.  Raises WireError."""
        try:
            taken = self._intake.take(body, received_s=self._clock.now_s(), steady_s=self._clock.steady_s())
        except BaseMissingError:
            self.metrics.refused("base")
            raise
        except WireError:
            self.metrics.refused("malformed")
            raise
        room = max(0, MAX_WAITING - len(self._waiting))
        left_out = max(0, len(taken.observations) - room)
        self._waiting += taken.observations[:room]
        self.metrics.took(
            observations=len(taken.observations) - left_out,
            malformed=taken.malformed + left_out,
            size_bytes=len(body),
        )

    async def run(self) -> None:
        """Judge for ever."""
        period_s = self.file.settings.judge_s
        while True:
            started_s = self._clock.steady_s()
            self.turn()
            await asyncio.sleep(max(0.0, period_s - (self._clock.steady_s() - started_s)))

    def turn(self) -> tuple[Diagnosis, ...]:
        """See what came, judge, tell."""
        started_s = self._clock.steady_s()
        now_s = self._clock.now_s() - self._zero_s
        try:
            believed = self._judge(now_s)
        except Exception:
            log.exception("judgement_failed", job=self.file.name)
            self.metrics.failed()
            self._begin_anew()
            believed = ()
        if self._reporter is not None:
            self._reporter.believe(believed)
        self.judged_s = self._clock.steady_s()
        self.metrics.judged(self.judged_s - started_s, believed=len(believed))
        self._count_agents()
        self._write_bundle(now_s)
        return believed

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """The newest faults as they are known now; without those that were withdrawn."""
        return [*self._before, *self._watcher.diagnoses()][-MAX_SHOWN:]

    def is_alive(self) -> bool:
        """Whether judgements are made in time."""
        return self._clock.steady_s() - self.judged_s <= max(5.0, 10 * self.file.settings.judge_s)

    async def finish(self) -> None:
        """Write what is being written, and what is due."""
        self._write_bundle(float("inf"))
        await asyncio.gather(*self._writing)

    def _judge(self, now_s: float) -> tuple[Diagnosis, ...]:
        came, self._waiting = sorted(self._waiting, key=_at_s), []
        for seen in came:
            self._tape.add(seen)
            self._watcher.observe(seen)
        self._tape.add(now_s)
        believed = self._watcher.evaluate(now_s)
        for item in self._news.of(believed):
            self._tell(item, now_s)
        return believed

    def _count_agents(self) -> None:
        agents, steady_s = self._intake.agents, self.judged_s
        every = (*agents.recorders.values(), *agents.probers.values())
        skew_s = max((abs(agent.skew.ahead_s) for agent in every), default=0.0)
        self.metrics.agents(heard=len(agents.recorders), lost=len(agents.lost(steady_s=steady_s)), skew_s=skew_s)
        self.metrics.probers(heard=len(agents.probers), lost=len(agents.lost_probers(steady_s=steady_s)))

    def _begin_anew(self) -> None:
        self._write_bundle(float("inf"))  # of the calls that led to it
        self._before = self.diagnoses
        self._watcher, self._news = FaultMonitor(self._job, self.file.settings), DiagnosisChanges()
        self._tape = Tape(MAX_TAPE)

    def _tell(self, item: DiagnosisChange, now_s: float) -> None:
        diagnosis = item.diagnosis
        self._lines.tell(diagnosis, item.said)
        if self._reporter is not None:
            self._reporter.tell(diagnosis, list(self._tape), dropped=self._tape.dropped)
        self.metrics.told(diagnosis, new=item.said is Change.NEW, isolates=item.isolates)
        self._bundle_for.add((key_of(diagnosis), diagnosis.detected_s))
        if self._bundle_due_s is None:
            self._bundle_due_s = now_s + BUNDLE_AFTER_S
            place = "" if diagnosis.node is None else f"-{diagnosis.node}"
            self._bundle_name = f"{self._zero_s + now_s:.0f}-{diagnosis.fault.value}-{diagnosis.scope.value}{place}"

    def _write_bundle(self, now_s: float) -> None:
        if self._bundle_due_s is None or now_s < self._bundle_due_s:
            return
        told = [each for each in self._watcher.diagnoses() if (key_of(each), each.detected_s) in self._bundle_for]
        self._bundle_due_s, self._bundle_for = None, set()
        if self._bundles is None:
            return
        writing = self._bundles.write(self._bundle_name, list(self._tape), dropped=self._tape.dropped, told=told)
        task = asyncio.get_running_loop().create_task(self._counted(writing))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _counted(self, writing: Coroutine[None, None, str]) -> None:
        self.metrics.bundled(await writing)


def _at_s(seen: Observation) -> float:
    return seen.at_s
