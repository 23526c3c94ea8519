"""Diagnoses reported to the real API: once, with names and a bundle, active while the fault lasts, despite outages."""

import io
from collections import Counter
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from api.client import AsyncClient, InProcessTransport, Retries
from api.schemas.faults import DiagnosisSummary
from api.schemas.tokens import TokenScope
from deploy.fault_monitor.api_reporter import EXPIRES_IN_S, EXTENDED_EVERY_S, GONE_AFTER_S, MAX_WAITING, ApiReporter
from deploy.fault_monitor.job_config import JobConfig, NodeNames
from deploy.fault_monitor.loop import MonitorClock, MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import JsonLines
from faults import diagnosis as words
from faults.diagnosis import Diagnosis, FaultClass
from faults.monitor import FaultMonitor
from faults.replay import calls, run
from fleet.documents import RuleError
from tests.deploy.fault_monitor.batches import batches
from tests.faults.stories import Story
from tests.testbed.fault_bundles import HANG
from tests.testbed.service import TOKENS, RunningService

pytestmark = pytest.mark.anyio
JOB = JobConfig.model_validate({"name": "llm", "nodes": 4, "settings": {"slow": None}})
NAMES = NodeNames(nodes=("gpu-[0-3]",)).of(JOB)
CALLS = tuple(calls(HANG.observations(), period_s=JOB.settings.judge_s))
(DIAGNOSIS,) = run(FaultMonitor(JOB.job(), JOB.settings), CALLS)
DIES = Story(nodes=4, gone=((5.1, 2),), end_s=7.0)


class CuttableTransport(httpx.AsyncBaseTransport):
    """A connection to the API that the test can cut."""

    def __init__(self, service: RunningService) -> None:
        self._inner = InProcessTransport(service.app)
        self.cut = False
        self.tried = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tried += 1
        if self.cut:
            raise httpx.ConnectError("connection refused")
        return await self._inner.handle_async_request(request)


class TimedReporter:
    """A reporter of one job in the time of the API."""

    def __init__(self, service: RunningService, *, scope: TokenScope = TokenScope.ADMIN, began_s: float = 0.0) -> None:
        self.transport = CuttableTransport(service)
        self.clock = service.clock
        self.counts: Counter[str] = Counter()
        self.client = AsyncClient(
            "http://localhost", token=TOKENS[scope], transport=self.transport, retries=Retries(attempts=1)
        )
        self.reporter = ApiReporter(
            client=self.client,
            file=JOB,
            names=NAMES,
            zero_s=service.clock.now().timestamp() + began_s,
            count=lambda outcome: self.counts.update([outcome]),
            now_s=lambda: service.clock.now().timestamp(),
            steady_s=service.clock.monotonic_s,
        )

    def diagnose(self, **changes: Any) -> Diagnosis:
        diagnosis = DIAGNOSIS.model_copy(update=changes)
        self.reporter.report(diagnosis, CALLS, dropped=0)
        return diagnosis

    async def later(self, seconds: float, *, active: tuple[Diagnosis, ...] = ()) -> None:
        """Advance the time in steps of a second, with an evaluation in each."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.reporter.refresh(active)
            await self.reporter.send_due()


async def stored_diagnoses(service: RunningService) -> list[DiagnosisSummary]:
    async with AsyncClient(
        "http://localhost", token=TOKENS[TokenScope.ADMIN], transport=InProcessTransport(service.app)
    ) as client:
        return [each async for each in client.iter_diagnoses()]


async def test_a_fault_is_reported_with_names_and_a_bundle_that_replays(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    timed.diagnose()
    await timed.reporter.send_due()
    (found,) = await stored_diagnoses(sqlite_service)
    assert (found.job, found.node, found.fault, found.isolate) == ("llm", "gpu-2", DIAGNOSIS.fault, DIAGNOSIS.isolate)
    again = await timed.client.replay_diagnosis_bundle(found.id)
    assert (again.same, again.includes_report) == (True, True)
    assert timed.counts == {"kept": 1}


async def test_a_diagnosis_is_cut_to_the_limits_of_the_api(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    sent = timed.diagnose(onset_s=DIAGNOSIS.detected_s + 0.3, reason="phase " + "x" * 2000)
    await timed.reporter.send_due()
    (found,) = await stored_diagnoses(sqlite_service)
    diagnosis = (await timed.client.get_diagnosis(found.id)).diagnosis
    assert (diagnosis.onset_s, diagnosis.detected_s) == (sent.detected_s, sent.detected_s)
    assert (len(diagnosis.reason), diagnosis.reason[-5:]) == (2000, "x ...")
    assert timed.counts == {"kept": 1}


async def test_a_diagnosis_is_extended_while_active_and_then_withdrawn(sqlite_service: RunningService) -> None:
    timed, clock = TimedReporter(sqlite_service), sqlite_service.clock
    diagnosis = timed.diagnose()
    await timed.later(10 * EXPIRES_IN_S, active=(diagnosis,))
    (found,) = await stored_diagnoses(sqlite_service)
    left_s = (found.expires_at - clock.now()).total_seconds()
    assert EXPIRES_IN_S - EXTENDED_EVERY_S <= left_s <= EXPIRES_IN_S
    await timed.later(GONE_AFTER_S - 1.0)
    assert (await stored_diagnoses(sqlite_service))[0].expires_at > clock.now()
    await timed.later(3.0)
    (ended,) = await stored_diagnoses(sqlite_service)
    assert ended.expires_at <= clock.now()
    tried = timed.transport.tried
    await timed.later(100.0)
    assert timed.transport.tried == tried  # no request for a withdrawn diagnosis


async def test_a_withdrawn_fault_that_becomes_active_again_is_extended_again(
    sqlite_service: RunningService,
) -> None:
    timed, clock = TimedReporter(sqlite_service), sqlite_service.clock
    diagnosis = timed.diagnose()
    await timed.later(3.0, active=(diagnosis,))
    await timed.later(GONE_AFTER_S + 2.0)
    assert (await stored_diagnoses(sqlite_service))[0].expires_at <= clock.now()
    await timed.later(2 * EXPIRES_IN_S, active=(diagnosis,))  # the same fault: no new report
    (found,) = await stored_diagnoses(sqlite_service)
    assert found.expires_at > clock.now()
    await timed.later(GONE_AFTER_S + 2.0)
    assert (await stored_diagnoses(sqlite_service))[0].expires_at <= clock.now()


async def test_waiting_reports_are_sent_after_an_outage(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    timed.transport.cut = True
    diagnosis = timed.diagnose()
    await timed.later(600.0, active=(diagnosis,))
    assert (await stored_diagnoses(sqlite_service), timed.counts["kept"]) == ([], 0)
    assert timed.transport.tried <= 20  # 1, 2, 4 ... 60 seconds apart
    timed.transport.cut = False
    await timed.later(60.0, active=(diagnosis,))
    (found,) = await stored_diagnoses(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()


async def test_a_new_monitor_continues_active_diagnoses(sqlite_service: RunningService) -> None:
    first = TimedReporter(sqlite_service)
    await _reported(first)
    sqlite_service.clock.advance(30.0)
    second = TimedReporter(sqlite_service)
    later = second.diagnose(onset_s=0.5, detected_s=1.0)  # the second monitor has no earlier observations
    await second.later(120.0, active=(later,))
    (found,) = await stored_diagnoses(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()
    assert second.counts == {"found": 1}


async def test_an_expired_diagnosis_of_the_same_fault_is_continued(sqlite_service: RunningService) -> None:
    first = TimedReporter(sqlite_service)
    await _reported(first)
    began_s = 2 * EXPIRES_IN_S
    sqlite_service.clock.advance(began_s)
    second = TimedReporter(sqlite_service)
    later = second.diagnose(onset_s=DIAGNOSIS.onset_s - began_s, detected_s=1.0, reason="again")
    await second.later(30.0, active=(later,))
    (found,) = await stored_diagnoses(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()


async def test_an_improved_diagnosis_replaces_the_first_one(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    timed.diagnose(isolate=False, confidence=0.5)
    await timed.later(1.0)
    surer = timed.diagnose(isolate=True, confidence=0.99)
    await timed.later(2.0, active=(surer,))
    now = sqlite_service.clock.now()
    assert {(each.isolate, each.expires_at > now) for each in await stored_diagnoses(sqlite_service)} == {
        (True, True),
        (False, False),
    }


async def test_a_refused_bundle_does_not_prevent_the_report(
    sqlite_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.bundles.MAX_CALLS", 10)
    timed = TimedReporter(sqlite_service)
    await _reported(timed)
    (found,) = await stored_diagnoses(sqlite_service)
    assert (found.node, found.has_bundle) == ("gpu-2", False)


async def test_a_token_without_read_scope_can_report(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service, scope=TokenScope.OPERATE)
    await _reported(timed)
    assert timed.counts == {"kept": 1}


async def test_the_queue_is_bounded_and_workload_diagnoses_are_not_reported(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    timed.diagnose(scope=words.Scope.WORKLOAD, node=None)
    for index in range(MAX_WAITING + 3):
        timed.diagnose(node=index % 4, onset_s=float(index))
    assert timed.counts == {"dropped": 3}
    await timed.later(1.0)
    assert len(await stored_diagnoses(sqlite_service)) <= MAX_WAITING


async def test_the_loop_reports_without_delaying_its_evaluation(sqlite_service: RunningService) -> None:
    timed = TimedReporter(sqlite_service)
    timed.transport.cut = True
    zero_s = sqlite_service.clock.now().timestamp()
    at_s = 7.0
    loop = MonitorLoop(
        JOB,
        lines=JsonLines(io.StringIO(), job="llm", zero_s=zero_s),
        metrics=MonitorMetrics(CollectorRegistry(), job="llm"),
        bundles=None,
        zero_s=zero_s,
        clock=MonitorClock(now_s=lambda: zero_s + at_s, steady_s=lambda: at_s),
        reporter=timed.reporter,
    )
    for body in batches(DIES.observations(), zero_s=zero_s, sent_s=zero_s + at_s):
        loop.receive(body)
    (active,) = loop.evaluate()
    assert (active.fault, active.node, timed.transport.tried) == (FaultClass.CRASH, 2, 0)
    timed.transport.cut = False
    await timed.reporter.finish()
    (found,) = await stored_diagnoses(sqlite_service)
    assert (found.node, found.has_bundle) == ("gpu-2", True)
    assert (await timed.client.replay_diagnosis_bundle(found.id)).includes_report


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (("gpu-[0-2]",), "expected 4 names"),
        (("gpu-[0-2]", "gpu-1"), "twice"),
        (("gpu-[0-2]", "rack/3"), "'rack/3': expected up to 160"),
    ],
)
async def test_names_that_do_not_fit_the_job_are_refused(nodes: tuple[str, ...], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        NodeNames(nodes=nodes).of(JOB)


async def _reported(timed: TimedReporter) -> None:
    timed.diagnose()
    await timed.reporter.send_due()
