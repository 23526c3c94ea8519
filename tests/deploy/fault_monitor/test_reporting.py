"""Faults reported to the real service: once, with names and proof, believed while they stand, in spite of outages."""

import io
from collections import Counter
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from api.client import AsyncClient, Retries
from api.schemas.faults import DiagnosisSummary
from api.schemas.tokens import Scope
from deploy.fault_monitor.api_reporter import EXPIRES_IN_S, GONE_AFTER_S, MAX_WAITING, RENEWED_EVERY_S, ApiReporter
from deploy.fault_monitor.job_config import JobConfig, NodeNames
from deploy.fault_monitor.loop import MonitorClock, MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import JsonLines
from faults import diagnosis as words
from faults.diagnosis import Diagnosis, FaultClass
from faults.monitor import FaultMonitor
from faults.replay import acts, run
from fleet.documents import RuleError
from tests.deploy.fault_monitor.batches import batches
from tests.faults.stories import Story
from tests.testbed.fault_bundles import HANG
from tests.testbed.service import TOKENS, RunningService

pytestmark = pytest.mark.anyio
JOB = JobConfig.model_validate({"name": "llm", "nodes": 4, "settings": {"slow": None}})
NAMES = NodeNames(nodes=("gpu-[0-3]",)).of(JOB)
TOLD = tuple(acts(HANG.told(), judge_s=JOB.settings.judge_s))
(STANDS,) = run(FaultMonitor(JOB.job(), JOB.settings), TOLD)
DIES = Story(nodes=4, gone=((5.1, 2),), end_s=7.0)


class Away(httpx.AsyncBaseTransport):
    """The way to a service, which can be cut."""

    def __init__(self, service: RunningService) -> None:
        self._inner = httpx.ASGITransport(service.app)
        self.cut = False
        self.tried = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tried += 1
        if self.cut:
            raise httpx.ConnectError("connection refused")
        return await self._inner.handle_async_request(request)


class Desk:
    """A reporter of one job in the service's own time."""

    def __init__(self, service: RunningService, *, scope: Scope = Scope.ADMIN, began_s: float = 0.0) -> None:
        self.way = Away(service)
        self.clock = service.clock
        self.counts: Counter[str] = Counter()
        self.client = AsyncClient(
            "http://localhost", token=TOKENS[scope], transport=self.way, retries=Retries(attempts=1)
        )
        self.reporter = ApiReporter(
            client=self.client,
            file=JOB,
            names=NAMES,
            zero_s=service.clock.now().timestamp() + began_s,
            counted=lambda outcome: self.counts.update([outcome]),
            now_s=lambda: service.clock.now().timestamp(),
            steady_s=service.clock.monotonic_s,
        )

    def tell(self, **changes: Any) -> Diagnosis:
        said = STANDS.model_copy(update=changes)
        self.reporter.tell(said, TOLD, dropped=0)
        return said

    async def later(self, seconds: float, *, believed: tuple[Diagnosis, ...] = ()) -> None:
        """Time goes by in steps of a second, in each of which the watcher judges."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.reporter.believe(believed)
            await self.reporter.turn()


async def kept(service: RunningService) -> list[DiagnosisSummary]:
    async with AsyncClient(
        "http://localhost", token=TOKENS[Scope.ADMIN], transport=httpx.ASGITransport(service.app)
    ) as client:
        return [each async for each in client.iter_diagnoses()]


async def test_a_fault_is_reported_by_name_with_a_proof_that_holds(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    desk.tell()
    await desk.reporter.turn()
    (found,) = await kept(sqlite_service)
    assert (found.job, found.node, found.fault, found.isolate) == ("llm", "gpu-2", STANDS.fault, STANDS.isolate)
    again = await desk.client.replay_diagnosis_bundle(found.id)
    assert (again.same, again.names_it) == (True, True)
    assert desk.counts == {"kept": 1}


async def test_what_a_service_would_not_take_is_made_to_fit(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    said = desk.tell(onset_s=STANDS.detected_s + 0.3, reason="phase " + "x" * 2000)
    await desk.reporter.turn()
    (found,) = await kept(sqlite_service)
    diagnosis = (await desk.client.get_diagnosis(found.id)).diagnosis
    assert (diagnosis.onset_s, diagnosis.detected_s) == (said.detected_s, said.detected_s)
    assert (len(diagnosis.reason), diagnosis.reason[-5:]) == (2000, "x ...")
    assert desk.counts == {"kept": 1}


async def test_it_is_believed_as_long_as_the_watcher_does_and_no_longer(sqlite_service: RunningService) -> None:
    desk, clock = Desk(sqlite_service), sqlite_service.clock
    said = desk.tell()
    await desk.later(10 * EXPIRES_IN_S, believed=(said,))
    (found,) = await kept(sqlite_service)
    left_s = (found.expires_at - clock.now()).total_seconds()
    assert EXPIRES_IN_S - RENEWED_EVERY_S <= left_s <= EXPIRES_IN_S
    await desk.later(GONE_AFTER_S - 1.0)
    assert (await kept(sqlite_service))[0].expires_at > clock.now()
    await desk.later(3.0)
    (ended,) = await kept(sqlite_service)
    assert ended.expires_at <= clock.now()
    tried = desk.way.tried
    await desk.later(100.0)
    assert desk.way.tried == tried  # what has ended is asked for no more


async def test_a_fault_that_is_believed_again_after_it_was_withdrawn_stands_again(
    sqlite_service: RunningService,
) -> None:
    desk, clock = Desk(sqlite_service), sqlite_service.clock
    said = desk.tell()
    await desk.later(3.0, believed=(said,))
    await desk.later(GONE_AFTER_S + 2.0)
    assert (await kept(sqlite_service))[0].expires_at <= clock.now()
    await desk.later(2 * EXPIRES_IN_S, believed=(said,))  # a watcher tells it as the same fault: no news
    (found,) = await kept(sqlite_service)
    assert found.expires_at > clock.now()
    await desk.later(GONE_AFTER_S + 2.0)
    assert (await kept(sqlite_service))[0].expires_at <= clock.now()


async def test_what_waited_for_the_service_comes_when_it_is_back(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    desk.way.cut = True
    said = desk.tell()
    await desk.later(600.0, believed=(said,))
    assert (await kept(sqlite_service), desk.counts["kept"]) == ([], 0)
    assert desk.way.tried <= 20  # 1, 2, 4 ... 60 seconds apart
    desk.way.cut = False
    await desk.later(60.0, believed=(said,))
    (found,) = await kept(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()


async def test_a_watcher_that_begins_anew_goes_on_with_what_stands(sqlite_service: RunningService) -> None:
    first = Desk(sqlite_service)
    await _reported(first)
    sqlite_service.clock.advance(30.0)
    second = Desk(sqlite_service)
    later = second.tell(onset_s=0.5, detected_s=1.0)  # it saw nothing of the beginning
    await second.later(120.0, believed=(later,))
    (found,) = await kept(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()
    assert second.counts == {"found": 1}


async def test_the_same_fault_told_after_its_belief_lapsed_is_still_one(sqlite_service: RunningService) -> None:
    first = Desk(sqlite_service)
    await _reported(first)
    began_s = 2 * EXPIRES_IN_S
    sqlite_service.clock.advance(began_s)
    second = Desk(sqlite_service)
    later = second.tell(onset_s=STANDS.onset_s - began_s, detected_s=1.0, reason="told anew")
    await second.later(30.0, believed=(later,))
    (found,) = await kept(sqlite_service)
    assert found.expires_at > sqlite_service.clock.now()


async def test_a_fault_that_is_known_better_takes_the_place_of_the_first_word(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    desk.tell(isolate=False, confidence=0.5)
    await desk.later(1.0)
    surer = desk.tell(isolate=True, confidence=0.99)
    await desk.later(2.0, believed=(surer,))
    now = sqlite_service.clock.now()
    assert {(each.isolate, each.expires_at > now) for each in await kept(sqlite_service)} == {
        (True, True),
        (False, False),
    }


async def test_a_proof_that_the_service_refuses_does_not_cost_the_verdict(
    sqlite_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.server.bundles.MAX_ACTS", 10)
    desk = Desk(sqlite_service)
    await _reported(desk)
    (found,) = await kept(sqlite_service)
    assert (found.node, found.has_bundle) == ("gpu-2", False)


async def test_a_token_that_may_only_report_is_enough(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service, scope=Scope.OPERATE)
    await _reported(desk)
    assert desk.counts == {"kept": 1}


async def test_the_queue_is_bounded_and_the_workload_is_not_reported(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    desk.tell(scope=words.Scope.WORKLOAD, node=None)
    for index in range(MAX_WAITING + 3):
        desk.tell(node=index % 4, onset_s=float(index))
    assert desk.counts == {"dropped": 3}
    await desk.later(1.0)
    assert len(await kept(sqlite_service)) <= MAX_WAITING


async def test_what_the_loop_names_is_reported_and_judging_never_waits(sqlite_service: RunningService) -> None:
    desk = Desk(sqlite_service)
    desk.way.cut = True
    zero_s = sqlite_service.clock.now().timestamp()
    at_s = 7.0
    loop = MonitorLoop(
        JOB,
        lines=JsonLines(io.StringIO(), job="llm", zero_s=zero_s),
        metrics=MonitorMetrics(CollectorRegistry(), job="llm"),
        bundles=None,
        zero_s=zero_s,
        clock=MonitorClock(now_s=lambda: zero_s + at_s, steady_s=lambda: at_s),
        reporter=desk.reporter,
    )
    for body in batches(DIES.told(), zero_s=zero_s, sent_s=zero_s + at_s):
        loop.take(body)
    (believed,) = loop.turn()
    assert (believed.fault, believed.node, desk.way.tried) == (FaultClass.CRASH, 2, 0)
    desk.way.cut = False
    await desk.reporter.finish()
    (found,) = await kept(sqlite_service)
    assert (found.node, found.has_bundle) == ("gpu-2", True)
    assert (await desk.client.replay_diagnosis_bundle(found.id)).names_it


@pytest.mark.parametrize(
    ("nodes", "words_"),
    [
        (("gpu-[0-2]",), "expected 4 names"),
        (("gpu-[0-2]", "gpu-1"), "twice"),
        (("gpu-[0-2]", "rack/3"), "'rack/3': expected up to 160"),
    ],
)
async def test_names_that_do_not_fit_the_job_are_refused(nodes: tuple[str, ...], words_: str) -> None:
    with pytest.raises(RuleError, match=words_):
        NodeNames(nodes=nodes).of(JOB)


async def _reported(desk: Desk) -> None:
    desk.tell()
    await desk.reporter.turn()
