"""Reporting faults to the service: each once with its names and its proof, believed for as long as the watcher does.

Judging never waits for it: what is told is put on a short queue, and one task carries it over.  While the service is
away it comes again and again, at longer and longer distances; what finds no room is counted and left out.

    told ──> waiting ──> reported ──(every third of its belief)──> renewed ──> withdrawn, once it is believed no more

A watcher that begins anew finds the fault that still stands among the verdicts believed there, and goes on with it.
The key of a report says fault, place and onset on the wall clock, so that the same one is kept once whoever sends it.
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
from faults.replay import Act

log = structlog.get_logger()

MAX_WAITING: Final = 64  # each holds the calls of some minutes
EXPIRES_IN_S: Final = 60.0
RENEWED_EVERY_S: Final = EXPIRES_IN_S / 3  # two may be lost
GONE_AFTER_S: Final = 5.0  # a judgement in between that says nothing does not withdraw it
MAX_WITHDRAWN: Final = 1024  # as many as a watcher remembers
TURN_S: Final = 0.25
LAST_WORDS_S: Final = 5.0
CUT: Final = " ..."
OUTCOMES: Final = ("kept", "found", "refused", "dropped", "failed")

KEY_FIELD: Final = "header.Idempotency-Key"


@dataclass(slots=True, kw_only=True)
class _Fault:
    """One that was told."""

    diagnosis: Diagnosis
    acts: Sequence[Act]
    dropped: int
    believed_s: float  # when it was last
    renewed_s: float = 0.0
    id: str | None = None
    before: str | None = None  # id of what was reported of it when less was known


@dataclass(slots=True, kw_only=True)
class ApiReporter:
    """Of one job, to one service."""

    client: AsyncClient
    file: JobConfig
    names: Sequence[str]  # of nodes, by index
    zero_s: float
    counted: Callable[[str], None] = lambda _outcome: None
    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, most_s=60.0))
    _waiting: deque[_Fault] = field(default_factory=deque)
    _standing: dict[Key, _Fault] = field(default_factory=dict)
    _withdrawn: dict[Key, _Fault] = field(default_factory=dict)

    def tell(self, diagnosis: Diagnosis, acts: Sequence[Act], *, dropped: int) -> None:
        """A fault that is new, or better known than before; not one of the workload itself."""
        if diagnosis.scope is Scope.WORKLOAD:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.counted("dropped")
            log.warning("verdict_not_reported", reason="too many wait")
            return
        fault = _Fault(diagnosis=diagnosis, acts=acts, dropped=dropped, believed_s=self.steady_s())
        self._withdrawn.pop(key_of(diagnosis), None)
        if (known := self._standing.get(key_of(diagnosis))) is not None:
            fault.before = known.id or known.before
        self._waiting.append(fault)
        self._standing[key_of(diagnosis)] = fault

    def believe(self, believed: Iterable[Diagnosis]) -> None:
        """What a judgement says now.  A fault that was withdrawn stands again: the watcher tells it as the same one."""
        for diagnosis in believed:
            key = key_of(diagnosis)
            if (again := self._withdrawn.pop(key, None)) is not None:
                self._standing[key] = again
                again.renewed_s = -inf
            if (fault := self._standing.get(key)) is not None:
                fault.believed_s = self.steady_s()

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self.turn()
            except Exception:  # whatever is wrong with one report, the watcher goes on
                log.exception("report_failed")
                self.counted("refused")
                if self._waiting:
                    self._waiting.popleft()
            await asyncio.sleep(TURN_S)

    async def finish(self) -> None:
        """Report what still waits.  Beliefs are left to lapse: whoever begins anew goes on with them."""
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self.turn()
        except TimeoutError:
            log.warning("verdicts_not_reported", waiting=len(self._waiting))

    async def turn(self) -> None:
        """All that is due, unless the service was away a moment ago."""
        if not self.backoff.is_due(self.file.name, now_s=self.steady_s()):
            return
        try:
            while self._waiting:
                await self._report(self._waiting[0])
                self._waiting.popleft().acts = ()  # a tape is large, and a fault may stand for days
            for place, fault in list(self._standing.items()):
                await self._keep_up(place, fault)
        except ApiError as error:
            self.backoff.failed(self.file.name, now_s=self.steady_s())
            self.counted("failed")
            log.warning("service_not_told", reason=str(error))
        else:
            self.backoff.succeeded(self.file.name)

    async def _report(self, fault: _Fault) -> None:
        found = await self._found(fault.diagnosis, believed=True)
        if found is None:
            await self._send(fault, await asyncio.to_thread(self._packed, fault))
        else:
            fault.id = found.id
            self.counted("found")
        if fault.before is not None and fault.before != fault.id:
            await self._believe(fault.before, for_s=0.0)

    async def _send(self, fault: _Fault, bundle: str | None) -> None:
        diagnosis = _fitting(fault.diagnosis)
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
            fault.id, fault.renewed_s = record.id, self.steady_s()
            self.counted("kept")

    async def _refused(self, fault: _Fault, error: InvalidRequestError, *, bundle: str | None) -> None:
        if any(
            violation.path == KEY_FIELD for violation in error.problem.errors
        ):  # it was reported before, in other words
            found = await self._found(fault.diagnosis, believed=False)
            fault.id = None if found is None else found.id
            self.counted("found")
        elif bundle is not None:  # too large, or too long to replay: that must not cost the verdict
            log.warning("bundle_refused", reason=str(error))
            await self._send(fault, None)
        else:
            self.counted("refused")
            log.error("verdict_refused", reason=str(error))

    async def _keep_up(self, place: Key, fault: _Fault) -> None:
        now_s = self.steady_s()
        gone = now_s - fault.believed_s > GONE_AFTER_S
        if fault.id is not None and (gone or now_s - fault.renewed_s >= RENEWED_EVERY_S):
            await self._believe(fault.id, for_s=0.0 if gone else EXPIRES_IN_S)
            fault.renewed_s = now_s
        if gone and self._standing.get(place) is fault:  # not told anew in the meantime
            self._withdrawn[place] = self._standing.pop(place)
            if len(self._withdrawn) > MAX_WITHDRAWN:
                del self._withdrawn[next(iter(self._withdrawn))]

    async def _believe(self, diagnosis_id: str, *, for_s: float) -> None:
        try:
            await self.client.set_diagnosis_expiry(diagnosis_id, expires_in_s=for_s)
        except (InvalidRequestError, NotFoundError) as error:
            log.warning("belief_not_told", reason=str(error))

    async def _found(self, diagnosis: Diagnosis, *, believed: bool) -> DiagnosisSummary | None:
        """The same fault as another watcher of this job reported it."""
        try:
            newest = await self.client.list_diagnoses(limit=PAGE_LIMIT_MAX)
        except ForbiddenError:  # the token may report but not read
            return None
        now = datetime.fromtimestamp(self.now_s(), UTC)
        ours = {known for fault in self._standing.values() for known in (fault.id, fault.before)}
        for each in newest.items:
            counts = each.id not in ours and (each.expires_at > now or not believed)
            if counts and each.job == self.file.name and self._same(each, diagnosis):
                return each
        return None

    def _same(self, known: DiagnosisSummary, diagnosis: Diagnosis) -> bool:
        said = (
            diagnosis.fault,
            diagnosis.scope,
            self._name(diagnosis.node),
            self._name(diagnosis.peer),
            diagnosis.switch,
        )
        as_sure = 1.0 - diagnosis.confidence > (1.0 - known.confidence) / 2 or diagnosis.confidence <= known.confidence
        return (
            said == (known.fault, known.scope, known.node, known.peer, known.switch)
            and (known.isolate or not diagnosis.isolate)  # what takes no node out does not stand for what does
            and as_sure
        )

    def key(self, diagnosis: Diagnosis) -> str:
        """The same for the same fault, whoever tells it."""
        place = (diagnosis.fault.value, diagnosis.scope.value, self._name(diagnosis.node), self._name(diagnosis.peer))
        onset_s = round(self.zero_s + diagnosis.onset_s)
        sure = diagnosis.direction, diagnosis.isolate, f"{diagnosis.confidence:.2f}"
        said = "\n".join(map(str, (self.file.name, *place, diagnosis.switch, onset_s, *sure)))
        return hashlib.sha256(said.encode()).hexdigest()

    def _name(self, index: int | None) -> str | None:
        return None if index is None else self.names[index]

    def _packed(self, fault: _Fault) -> str:
        settings = self.file.settings
        lines = write_bundle(
            self.file.job(), settings, fault.acts, version=version("fleetwright"), dropped=fault.dropped
        )
        return base64.b64encode(gzip.compress("".join(lines).encode(), mtime=0)).decode()


def _fitting(diagnosis: Diagnosis) -> Diagnosis:
    """As a service takes it: an agent's clock may be ahead of ours, and a reason holds what a job calls its phases."""
    reason = diagnosis.reason
    if len(reason) > MAX_REASON:
        reason = reason[: MAX_REASON - len(CUT)] + CUT
    return diagnosis.model_copy(update={"onset_s": min(diagnosis.onset_s, diagnosis.detected_s), "reason": reason})
