"""Monitored runs: a new monitor for each attempt, a diagnosis of a frozen worker, and none of ended workers."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

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

    def observe(self, now_s: float) -> None:
        self.now_s = now_s
        for rank, pid in self.spec.pid_of.items():
            self.last.append(Observation(now_s, self.spec.node, Process(pid, self.state, 0.0, 0), rank=rank))
            if self.beats:
                beat = Heartbeat(entered=self.enq, finished=self.enq, op=None, step=self.enq, phase="compute")
                self.last.append(Observation(now_s, self.spec.node, beat, rank=rank))

    async def take(self) -> bytes | None:
        self.number += 1
        observations, self.last = self.last, []
        body, _held = encode(
            [],
            observations,
            session=f"s{id(self)}",
            number=self.number,
            held=None,
            node=self.spec.node,
            sent_s=self.now_s,
        )
        return body

    def close(self) -> None:
        self.closed = True


def run_on(*node_ids: str, attempt: int = 1, **more: Any) -> RunView:
    places = tuple(
        RankLocation(rank=rank, node_id=node, address="127.0.0.1", pid=100 + rank) for rank, node in enumerate(node_ids)
    )
    return RunView(run="llm", attempt=attempt, places=places, **{"phase": RunPhase.RUNNING} | more)


class MonitorHarness:
    """A run monitor whose runs and recorders the test controls."""

    def __init__(self) -> None:
        self.now_s = ZERO_S
        self.runs: tuple[RunView, ...] = ()
        self.recorders: list[NodeRecorderActor] = []
        self.output = io.StringIO()
        self.ending_attempts: set[tuple[str, int]] = set()
        self.names: list[Sequence[str]] = []
        self.monitor = RunMonitor(
            read_runs=self._observe,
            open_recorder=self._open,
            make_loop=self._make,
            names=lambda node_id: f"gpu-{node_id}",
            inbox="/run/{node}/inbox",
            ending_attempts=lambda: self.ending_attempts,
        )

    async def turns(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD_S)):
            self.now_s += PERIOD_S
            for recorder in self.recorders:
                if not recorder.closed:
                    recorder.observe(self.now_s)
            await self.monitor.turn()

    def step(self, enq: int) -> None:
        for recorder in self.recorders:
            recorder.enq = enq

    async def _observe(self) -> RunsObserved:
        return RunsObserved(runs=self.runs)

    def _open(self, node_id: str, spec: NodeRecorderSpec) -> NodeRecorderActor:
        self.recorders.append(NodeRecorderActor(node_id, spec))
        return self.recorders[-1]

    def _make(self, file: JobConfig, names: Sequence[str]) -> MonitorLoop:
        self.names.append(names)
        zero_s = self.now_s
        return MonitorLoop(
            file,
            lines=JsonLines(self.output, job=file.name, zero_s=zero_s),
            metrics=MonitorMetrics(CollectorRegistry(), job=file.name),
            bundles=None,
            zero_s=zero_s,
            clock=MonitorClock(now_s=lambda: self.now_s, steady_s=time.monotonic),
        )


async def test_an_attempt_has_a_recorder_on_each_node_with_its_ranks() -> None:
    harness = MonitorHarness()
    harness.runs = (run_on("x", "y", "x"),)
    await harness.turns(PERIOD_S)
    assert harness.monitor.attempts == {("llm", 1)}
    assert [(recorder.node_id, dict(recorder.spec.pid_of), recorder.spec.inbox) for recorder in harness.recorders] == [
        ("x", {0: 100, 2: 102}, "/run/x/inbox"),
        ("y", {1: 101}, "/run/y/inbox"),
    ]
    assert harness.recorders[0].spec.rank_node == (0, 1, 0)
    assert harness.recorders[0].spec.address_of == {}  # on one machine connections cannot be attributed to nodes
    assert harness.names == [["gpu-x", "gpu-y"]]


async def test_a_frozen_worker_is_diagnosed() -> None:
    harness = MonitorHarness()
    harness.runs = (run_on("x", "y"),)
    await harness.turns(PERIOD_S)
    for step in range(1, 20):
        harness.step(step)
        await harness.turns(PERIOD_S)
    harness.recorders[1].state, harness.recorders[1].beats = "T", False
    await harness.turns(10.0)
    assert '"node":1' in harness.output.getvalue()
    assert '"isolate":true' in harness.output.getvalue()


@pytest.mark.parametrize(
    "after",
    [
        (run_on("x", "y", phase=RunPhase.ENDING),),
        (run_on("x", "z", attempt=2),),
        (),
    ],
)
async def test_the_end_of_workers_causes_no_diagnosis(after: tuple[RunView, ...]) -> None:
    harness = MonitorHarness()
    harness.runs = (run_on("x", "y"),)
    await harness.turns(PERIOD_S)
    for step in range(1, 20):
        harness.step(step)
        await harness.turns(PERIOD_S)
    first = list(harness.recorders)
    for recorder in first:
        recorder.state, recorder.beats = "gone", False
    harness.runs = after
    await harness.turns(10.0)
    assert all(recorder.closed for recorder in first)
    assert harness.output.getvalue() == ""


async def test_an_attempt_with_an_open_case_is_no_longer_monitored() -> None:
    harness = MonitorHarness()
    harness.runs = (run_on("x", "y"),)
    await harness.turns(PERIOD_S)
    harness.ending_attempts = {("llm", 1)}
    await harness.turns(PERIOD_S)
    assert harness.monitor.attempts == frozenset()
    assert harness.monitor.count == 0
    harness.runs = (replace(run_on("x", "z"), attempt=2),)
    await harness.turns(PERIOD_S)
    assert harness.monitor.attempts == {("llm", 2)}


async def test_a_run_that_cannot_be_monitored_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MonitorHarness()
    harness.runs = tuple(replace(run_on("x", "y"), run=name) for name in ("first", "second", "third"))
    make = harness.monitor.make_loop

    def fail_one(file: JobConfig, names: Sequence[str]) -> MonitorLoop:
        if file.name == "second":
            raise RuntimeError("a defect")
        return make(file, names)

    monkeypatch.setattr(harness.monitor, "make_loop", fail_one)
    await harness.monitor.turn()
    assert harness.monitor.attempts == {("first", 1), ("third", 1)}
    assert harness.monitor.count == 2
