"""Monitored runs: each attempt afresh, no diagnosis of ended workers, one of a frozen worker."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from prometheus_client import CollectorRegistry

from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorClock, MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import JsonLines
from deploy.telemetry.batch_codec import encode
from deploy.training.node_recorder_actor import NodeRecorderSpec
from deploy.training.run_monitor import RunMonitor
from deploy.training.run_status import RunsObserved
from faults.observations import Heartbeat, Observation, Process
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunView

pytestmark = pytest.mark.anyio
ZERO_S = 1_700_000_000.0
PERIOD_S = 0.25


@dataclass
class NodeRecorderActor:
    """A recorder with the observations of a test."""

    node_id: str
    spec: NodeRecorderSpec
    state: str = "R"
    beats: bool = True
    closed: bool = False
    number: int = 0
    enq: int = 0
    now_s: float = ZERO_S
    last: list[Observation] = field(default_factory=list)

    def see(self, now_s: float) -> None:
        self.now_s = now_s
        for rank, pid in self.spec.pid_of.items():
            self.last.append(Observation(now_s, self.spec.node, Process(pid, self.state, 0.0, 0), rank=rank))
            if self.beats:
                beat = Heartbeat(entered=self.enq, finished=self.enq, op=None, step=self.enq, phase="compute")
                self.last.append(Observation(now_s, self.spec.node, beat, rank=rank))

    async def take(self) -> bytes | None:
        self.number += 1
        seen, self.last = self.last, []
        body, _held = encode(
            [], seen, session=f"s{id(self)}", number=self.number, held=None, node=self.spec.node, sent_s=self.now_s
        )
        return body

    def close(self) -> None:
        self.closed = True


def run_on(*node_ids: str, attempt: int = 1, **more: Any) -> RunView:
    places = tuple(
        RankLocation(rank=rank, node_id=node, address="127.0.0.1", pid=100 + rank) for rank, node in enumerate(node_ids)
    )
    return RunView(run="llm", attempt=attempt, places=places, **{"phase": RunPhase.RUNNING} | more)


class Ward:
    """A watch of what a test shows it."""

    def __init__(self) -> None:
        self.now_s = ZERO_S
        self.runs: tuple[RunView, ...] = ()
        self.eyes: list[NodeRecorderActor] = []
        self.told = io.StringIO()
        self.doomed: set[tuple[str, int]] = set()
        self.names: list[Sequence[str]] = []
        self.watch = RunMonitor(
            look=self._look,
            open_recorder=self._open,
            make_loop=self._make,
            names=lambda node_id: f"gpu-{node_id}",
            inbox="/run/{node}/inbox",
            doomed=lambda: self.doomed,
        )

    async def turns(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD_S)):
            self.now_s += PERIOD_S
            for eye in self.eyes:
                if not eye.closed:
                    eye.see(self.now_s)
            await self.watch.turn()

    def step(self, enq: int) -> None:
        for eye in self.eyes:
            eye.enq = enq

    async def _look(self) -> RunsObserved:
        return RunsObserved(runs=self.runs)

    def _open(self, node_id: str, spec: NodeRecorderSpec) -> NodeRecorderActor:
        self.eyes.append(NodeRecorderActor(node_id, spec))
        return self.eyes[-1]

    def _make(self, file: JobConfig, names: Sequence[str]) -> MonitorLoop:
        self.names.append(names)
        zero_s = self.now_s
        return MonitorLoop(
            file,
            lines=JsonLines(self.told, job=file.name, zero_s=zero_s),
            metrics=MonitorMetrics(CollectorRegistry(), job=file.name),
            bundles=None,
            zero_s=zero_s,
            clock=MonitorClock(now_s=lambda: self.now_s, steady_s=time.monotonic),
        )


async def test_an_attempt_has_an_eye_on_each_of_its_nodes_with_its_ranks() -> None:
    ward = Ward()
    ward.runs = (run_on("x", "y", "x"),)
    await ward.turns(PERIOD_S)
    assert ward.watch.attempts == {("llm", 1)}
    assert [(eye.node_id, dict(eye.spec.pid_of), eye.spec.inbox) for eye in ward.eyes] == [
        ("x", {0: 100, 2: 102}, "/run/x/inbox"),
        ("y", {1: 101}, "/run/y/inbox"),
    ]
    assert ward.eyes[0].spec.rank_node == (0, 1, 0)
    assert ward.eyes[0].spec.address_of == {}  # one machine: whose connection it is cannot be told
    assert ward.names == [["gpu-x", "gpu-y"]]


async def test_a_worker_that_stands_still_is_named() -> None:
    ward = Ward()
    ward.runs = (run_on("x", "y"),)
    await ward.turns(PERIOD_S)
    for step in range(1, 20):
        ward.step(step)
        await ward.turns(PERIOD_S)
    ward.eyes[1].state, ward.eyes[1].beats = "T", False
    await ward.turns(10.0)
    assert '"node":1' in ward.told.getvalue()
    assert '"isolate":true' in ward.told.getvalue()


@pytest.mark.parametrize(
    "after",
    [
        (run_on("x", "y", phase=RunPhase.ENDING),),
        (run_on("x", "z", attempt=2),),
        (),
    ],
)
async def test_an_end_of_workers_is_never_heard(after: tuple[RunView, ...]) -> None:
    ward = Ward()
    ward.runs = (run_on("x", "y"),)
    await ward.turns(PERIOD_S)
    for step in range(1, 20):
        ward.step(step)
        await ward.turns(PERIOD_S)
    first = list(ward.eyes)
    for eye in first:
        eye.state, eye.beats = "gone", False
    ward.runs = after
    await ward.turns(10.0)
    assert all(eye.closed for eye in first)
    assert ward.told.getvalue() == ""


async def test_what_a_case_has_begun_with_is_watched_no_more() -> None:
    ward = Ward()
    ward.runs = (run_on("x", "y"),)
    await ward.turns(PERIOD_S)
    ward.doomed = {("llm", 1)}
    await ward.turns(PERIOD_S)
    assert ward.watch.attempts == frozenset()
    assert ward.watch.count == 0
    ward.runs = (replace(run_on("x", "z"), attempt=2),)
    await ward.turns(PERIOD_S)
    assert ward.watch.attempts == {("llm", 2)}


async def test_a_run_that_cannot_be_watched_leaves_the_others_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward()
    ward.runs = tuple(replace(run_on("x", "y"), run=name) for name in ("first", "second", "third"))
    make = ward.watch.make_loop

    def fail_one(file: JobConfig, names: Sequence[str]) -> MonitorLoop:
        if file.name == "second":
            raise RuntimeError("a defect")
        return make(file, names)

    monkeypatch.setattr(ward.watch, "make_loop", fail_one)
    await ward.watch.turn()
    assert ward.watch.attempts == {("first", 1), ("third", 1)}
    assert ward.watch.count == 2
