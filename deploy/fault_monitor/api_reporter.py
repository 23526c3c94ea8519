"""Reports diagnoses to the API: each fault once, with node names and its bundle, and extends the expiry while it lasts.

The evaluation never waits for a report: diagnoses go to a short queue, which one task empties.  While the API is
unavailable, the task retries with growing delays.  A full queue drops further diagnoses and counts them.

    diagnosed ──> queued ──> reported ──(every third of the expiry)──> extended ──> withdrawn, once no longer active

A new monitor finds the active diagnoses of its job in the API and continues them.  The idempotency key of a report has
the fault, its place and its onset by wall clock, so the API stores a fault once, whichever monitor reports it.
"""

import asyncio
import base64
import gzip
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import inf
from typing import Final

import structlog

from api.client import ApiError, AsyncClient, ForbiddenError, InvalidRequestError, NotFoundError
from api.schemas.faults import MAX_REASON, DiagnosisReport, DiagnosisSummary
from api.schemas.pages import PAGE_LIMIT_MAX
from deploy.common.backoff import Backoff
from deploy.fault_monitor.job_config import JobConfig
from faults.bundle import write_bundle
from faults.diagnosis import Diagnosis, Scope
from faults.monitor import Key, key_of
from faults.replay import Call

log = structlog.get_logger()

MAX_WAITING: Final = 64  # each holds the calls of some minutes
EXPIRES_IN_S: Final = 60.0
EXTENDED_EVERY_S: Final = EXPIRES_IN_S / 3  # two extensions can be lost
GONE_AFTER_S: Final = 5.0  # a single evaluation without the fault does not withdraw it
MAX_WITHDRAWN: Final = 1024  # as many faults as a monitor keeps
PERIOD_S: Final = 0.25
FINISH_TIMEOUT_S: Final = 5.0
ELLIPSIS: Final = " ..."
OUTCOMES: Final = ("kept", "found", "refused", "dropped", "failed")

KEY_FIELD: Final = "header.Idempotency-Key"


@dataclass(slots=True, kw_only=True)
class _Fault:
    diagnosis: Diagnosis
    calls: Sequence[Call]
    dropped: int
    active_s: float  # when it was last active
    extended_s: float = 0.0
    id: str | None = None
    before: str | None = None  # id of its earlier, weaker diagnosis


@dataclass(slots=True, kw_only=True)
class ApiReporter:
    client: AsyncClient
    file: JobConfig
    names: Sequence[str]  # of nodes, by index
    zero_s: float
    count: Callable[[str], None] = lambda _outcome: None
    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=60.0))
    _waiting: deque[_Fault] = field(default_factory=deque)
    _active: dict[Key, _Fault] = field(default_factory=dict)
    _withdrawn: dict[Key, _Fault] = field(default_factory=dict)

    def report(self, diagnosis: Diagnosis, calls: Sequence[Call], *, dropped: int) -> None:
        """Queue a new or improved diagnosis; diagnoses of the workload are not reported."""
        if diagnosis.scope is Scope.WORKLOAD:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.count("dropped")
            log.warning("diagnosis_not_reported", reason="the queue is full")
            return
        fault = _Fault(diagnosis=diagnosis, calls=calls, dropped=dropped, active_s=self.steady_s())
        self._withdrawn.pop(key_of(diagnosis), None)
        if (known := self._active.get(key_of(diagnosis))) is not None:
            fault.before = known.id or known.before
        self._waiting.append(fault)
        self._active[key_of(diagnosis)] = fault

    def refresh(self, active: Iterable[Diagnosis]) -> None:
        """Take the active faults of an evaluation.  A withdrawn fault can become active again."""
        for diagnosis in active:
            key = key_of(diagnosis)
            if (again := self._withdrawn.pop(key, None)) is not None:
                self._active[key] = again
                again.extended_s = -inf
            if (fault := self._active.get(key)) is not None:
                fault.active_s = self.steady_s()

    async def run(self) -> None:
        while True:
            try:
                await self.send_due()
            except Exception:  # a defect in one report must not end the reporter
                log.exception("report_failed")
                self.count("refused")
                if self._waiting:
                    self._waiting.popleft()
            await asyncio.sleep(PERIOD_S)

    async def finish(self) -> None:
        """Send the waiting reports.  Active diagnoses expire, unless a new monitor continues them."""
        try:
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                await self.send_due()
        except TimeoutError:
            log.warning("diagnoses_not_reported", waiting=len(self._waiting))

    async def send_due(self) -> None:
        """Send the waiting reports and the due extensions, unless the backoff still lasts."""
        if not self.backoff.is_due(self.file.name, now_s=self.steady_s()):
            return
        try:
            while self._waiting:
                await self._report(self._waiting[0])
                self._waiting.popleft().calls = ()  # a call log is large, and a fault can last for days
            for place, fault in list(self._active.items()):
                await self._extend(place, fault)
        except ApiError as error:
            self.backoff.failed(self.file.name, now_s=self.steady_s())
            self.count("failed")
            log.warning("api_unavailable", reason=str(error))
        else:
            self.backoff.succeeded(self.file.name)

    async def _report(self, fault: _Fault) -> None:
        found = await self._find(fault.diagnosis, only_active=True)
        if found is None:
            await self._send(fault, await asyncio.to_thread(self._packed, fault))
        else:
            fault.id = found.id
            self.count("found")
        if fault.before is not None and fault.before != fault.id:
            await self._set_expiry(fault.before, expires_in_s=0.0)

    async def _send(self, fault: _Fault, bundle: str | None) -> None:
        diagnosis = _within_limits(fault.diagnosis)
        ends = [end for end in (diagnosis.node, diagnosis.peer) if end is not None]
        report = DiagnosisReport(
            job=self.file.name,
            diagnosis=diagnosis,
            nodes={str(end): self.names[end] for end in ends},
            expires_in_s=EXPIRES_IN_S,
            bundle=bundle,
        )
        try:
            record = await self.client.report_diagnosis(report, idempotency_key=self.key(diagnosis))
        except InvalidRequestError as error:
            await self._refused(fault, error, bundle=bundle)
        else:
            fault.id, fault.extended_s = record.id, self.steady_s()
            self.count("kept")

    async def _refused(self, fault: _Fault, error: InvalidRequestError, *, bundle: str | None) -> None:
        # A used key: the fault was reported before, with another body.
        if any(violation.path == KEY_FIELD for violation in error.problem.errors):
            found = await self._find(fault.diagnosis, only_active=False)
            fault.id = None if found is None else found.id
            self.count("found")
        elif bundle is not None:  # too large, or too long to replay: report the diagnosis without it
            log.warning("bundle_refused", reason=str(error))
            await self._send(fault, None)
        else:
            self.count("refused")
            log.error("diagnosis_refused", reason=str(error))

    async def _extend(self, place: Key, fault: _Fault) -> None:
        now_s = self.steady_s()
        gone = now_s - fault.active_s > GONE_AFTER_S
        if fault.id is not None and (gone or now_s - fault.extended_s >= EXTENDED_EVERY_S):
            await self._set_expiry(fault.id, expires_in_s=0.0 if gone else EXPIRES_IN_S)
            fault.extended_s = now_s
        if gone and self._active.get(place) is fault:  # no new diagnosis in the meantime
            self._withdrawn[place] = self._active.pop(place)
            if len(self._withdrawn) > MAX_WITHDRAWN:
                del self._withdrawn[next(iter(self._withdrawn))]

    async def _set_expiry(self, diagnosis_id: str, *, expires_in_s: float) -> None:
        try:
            await self.client.set_diagnosis_expiry(diagnosis_id, expires_in_s=expires_in_s)
        except (InvalidRequestError, NotFoundError) as error:
            log.warning("expiry_not_set", reason=str(error))

    async def _find(self, diagnosis: Diagnosis, *, only_active: bool) -> DiagnosisSummary | None:
        """Return the same fault in a report of another monitor of this job."""
        try:
            newest = await self.client.list_diagnoses(limit=PAGE_LIMIT_MAX)
        except ForbiddenError:  # the token can report but not read
            return None
        now = datetime.fromtimestamp(self.now_s(), UTC)
        ours = {known for fault in self._active.values() for known in (fault.id, fault.before)}
        for each in newest.items:
            counts = each.id not in ours and (each.expires_at > now or not only_active)
            if counts and each.job == self.file.name and self._is_same(each, diagnosis):
                return each
        return None

    def _is_same(self, known: DiagnosisSummary, diagnosis: Diagnosis) -> bool:
        """Return whether both are the same fault and the known diagnosis is not weaker."""
        place = (diagnosis.fault, diagnosis.scope, self._name(diagnosis.node), self._name(diagnosis.peer))
        not_halved = 1.0 - diagnosis.confidence > (1.0 - known.confidence) / 2
        return (
            (*place, diagnosis.switch) == (known.fault, known.scope, known.node, known.peer, known.switch)
            and (known.isolate or not diagnosis.isolate)
            and (not_halved or diagnosis.confidence <= known.confidence)
        )

    def key(self, diagnosis: Diagnosis) -> str:
        """Return the idempotency key: equal for the same fault, whichever monitor reports it."""
        place = (diagnosis.fault.value, diagnosis.scope.value, self._name(diagnosis.node), self._name(diagnosis.peer))
        onset_s = round(self.zero_s + diagnosis.onset_s)
        strength = diagnosis.direction, diagnosis.isolate, f"{diagnosis.confidence:.2f}"
        text = "\n".join(map(str, (self.file.name, *place, diagnosis.switch, onset_s, *strength)))
        return hashlib.sha256(text.encode()).hexdigest()

    def _name(self, index: int | None) -> str | None:
        return None if index is None else self.names[index]

    def _packed(self, fault: _Fault) -> str:
        job, settings = self.file.job(), self.file.settings
        lines = write_bundle(job, settings, fault.calls, version=version("fleetwright"), dropped=fault.dropped)
        return base64.b64encode(gzip.compress("".join(lines).encode(), mtime=0)).decode()


def _within_limits(diagnosis: Diagnosis) -> Diagnosis:
    """Fit a diagnosis to the API's limits: an agent's clock can be ahead, and a job names its phases freely."""
    reason = diagnosis.reason
    if len(reason) > MAX_REASON:
        reason = reason[: MAX_REASON - len(ELLIPSIS)] + ELLIPSIS
    return diagnosis.model_copy(update={"onset_s": min(diagnosis.onset_s, diagnosis.detected_s), "reason": reason})
