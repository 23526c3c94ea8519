"""Work in its own thread: it restarts after any failure, and ends cleanly on stop."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from deploy.ray_actor.loop_thread import LoopThread, Work
from deploy.ray_actor.messages import LoopState
from tests.testbed.waiting import PATIENCE_S, wait_for

Run = Callable[[Work], LoopThread]


@pytest.fixture
def run() -> Iterator[Run]:
    """Loops that are all stopped at the end."""
    loops: list[LoopThread] = []

    def started(work: Work) -> LoopThread:
        loop = LoopThread(work, retry_s=0.01)
        loops.append(loop)
        loop.start()
        return loop

    yield started
    for loop in loops:
        assert loop.stop(timeout_s=PATIENCE_S)


class Endless:
    """Work that ends when it is cancelled, and counts its starts and ends."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    async def __call__(self, started: Callable[[], None]) -> None:
        self.started += 1
        started()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a clean end may take time
            self.ended += 1


def test_the_loop_runs_until_it_is_stopped_and_ends_cleanly(run: Run) -> None:
    work = Endless()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    loop.start()
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.started, work.ended) == (LoopState.STOPPED, 1, 1)
    assert loop.stop(timeout_s=PATIENCE_S)


def test_the_loop_can_be_started_again_after_a_stop(run: Run) -> None:
    work = Endless()
    loop = run(work)
    for number in range(1, 4):
        wait_for(lambda: work.started, lambda started, n=number: started == n, what="start")  # type: ignore[misc]
        assert loop.stop(timeout_s=PATIENCE_S)
        loop.start()


def test_a_stop_immediately_after_the_start_takes_effect(run: Run) -> None:
    work = Endless()
    loop = run(work)
    assert loop.stop(timeout_s=PATIENCE_S)
    assert loop.state is LoopState.STOPPED
    assert work.started == work.ended


class Slow:
    """Work whose end waits for its release, and that counts concurrent runs."""

    def __init__(self, *, fails: bool = False) -> None:
        self.released = threading.Event()
        self.started = self.ended = self.active = self.most_active = 0
        self._fails = fails

    async def __call__(self, started: Callable[[], None]) -> None:
        self.started += 1
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        started()
        try:
            await asyncio.Event().wait()
        finally:
            while not self.released.is_set():
                await asyncio.sleep(0)
            self.active -= 1
            self.ended += 1
            if self._fails:
                raise OSError("the lease could not be released")


@pytest.fixture
def stopping(run: Run) -> Iterator[tuple[LoopThread, Slow]]:
    """A loop that has received a stop and has not ended yet."""
    work = Slow()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert not loop.stop(timeout_s=0.0)
    yield loop, work
    work.released.set()


def test_a_start_during_a_stop_restarts_the_work_after_its_end(stopping: tuple[LoopThread, Slow]) -> None:
    loop, work = stopping
    loop.start()
    loop.start()
    assert (loop.state, work.started, work.ended) == (LoopState.STARTING, 1, 0)
    work.released.set()
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert (work.started, work.ended, work.most_active) == (2, 1, 1)


def test_repeated_stops_before_the_end_let_the_work_end_once(stopping: tuple[LoopThread, Slow]) -> None:
    loop, work = stopping
    assert not loop.stop(timeout_s=0.0)
    loop.start()
    assert not loop.stop(timeout_s=0.0)
    assert work.ended == 0
    work.released.set()
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.started, work.ended) == (LoopState.STOPPED, 1, 1)


def test_work_that_fails_during_a_stop_is_not_restarted(run: Run) -> None:
    work = Slow(fails=True)
    work.released.set()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.started, work.ended) == (LoopState.STOPPED, 1, 1)


def test_a_loop_that_was_never_started_is_stopped() -> None:
    loop = LoopThread(Endless())
    assert loop.stop()
    assert loop.state is LoopState.STOPPED


def test_failing_work_is_reported_and_restarted() -> None:
    failures = iter(["no answer from the service\nat all", "again"])
    states: list[tuple[LoopState, str | None]] = []
    endless = Endless()

    async def work(started: Callable[[], None]) -> None:
        states.append((loop.state, loop.error))
        if (reason := next(failures, None)) is not None:
            raise ExceptionGroup("unhandled errors", [OSError(reason)])
        await endless(started)

    loop = LoopThread(work, retry_s=0.01)
    loop.start()
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert states == [
        (LoopState.STARTING, None),
        (LoopState.FAILED, "no answer from the service"),
        (LoopState.FAILED, "again"),
    ]
    assert loop.error is None
    assert loop.stop(timeout_s=PATIENCE_S)


def test_work_that_ends_by_itself_is_a_failure(run: Run) -> None:
    ended = threading.Event()

    async def work(_begun: Callable[[], None]) -> None:
        if ended.is_set():
            await asyncio.Event().wait()
        ended.set()

    loop = run(work)
    wait_for(lambda: loop.error, what="failure")
    assert loop.error == "it ended by itself"
