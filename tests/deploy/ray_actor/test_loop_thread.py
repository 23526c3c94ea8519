"""Work in a thread of its own: it begins again after whatever ended it, and ends well when told to."""

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

    def begun(work: Work) -> LoopThread:
        loop = LoopThread(work, again_s=0.01)
        loops.append(loop)
        loop.start()
        return loop

    yield begun
    for loop in loops:
        assert loop.stop(timeout_s=PATIENCE_S)


class Endless:
    """Work that ends when it is cancelled, and counts its lives."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def __call__(self, begun: Callable[[], None]) -> None:
        self.begun += 1
        begun()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # what ends well may take its time
            self.ended += 1


def test_it_runs_until_it_is_stopped_and_ends_well(run: Run) -> None:
    work = Endless()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    loop.start()
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.begun, work.ended) == (LoopState.STOPPED, 1, 1)
    assert loop.stop(timeout_s=PATIENCE_S)


def test_it_goes_on_after_a_stop(run: Run) -> None:
    work = Endless()
    loop = run(work)
    for life in range(1, 4):
        wait_for(lambda: work.begun, lambda begun, life=life: begun == life, what="beginning")  # type: ignore[misc]
        assert loop.stop(timeout_s=PATIENCE_S)
        loop.start()


def test_a_stop_right_after_the_start_is_a_stop(run: Run) -> None:
    work = Endless()
    loop = run(work)
    assert loop.stop(timeout_s=PATIENCE_S)
    assert loop.state is LoopState.STOPPED
    assert work.begun == work.ended


class Slow:
    """Work that takes until it is released to end well, and counts who is at it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.released = threading.Event()
        self.begun = self.ended = self.at_work = self.most_at_work = 0
        self._fails = fails

    async def __call__(self, begun: Callable[[], None]) -> None:
        self.begun += 1
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        begun()
        try:
            await asyncio.Event().wait()
        finally:
            while not self.released.is_set():
                await asyncio.sleep(0)
            self.at_work -= 1
            self.ended += 1
            if self._fails:
                raise OSError("the lease could not be given back")


@pytest.fixture
def stopping(run: Run) -> Iterator[tuple[LoopThread, Slow]]:
    """A loop that was told to stop and has yet to end."""
    work = Slow()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert not loop.stop(timeout_s=0.0)
    yield loop, work
    work.released.set()


def test_a_start_before_the_end_of_what_was_stopped_begins_anew_after_it(stopping: tuple[LoopThread, Slow]) -> None:
    loop, work = stopping
    loop.start()
    loop.start()
    assert (loop.state, work.begun, work.ended) == (LoopState.STARTING, 1, 0)
    work.released.set()
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert (work.begun, work.ended, work.most_at_work) == (2, 1, 1)


def test_stopped_once_more_before_its_end_it_ends_undisturbed_and_stays_so(stopping: tuple[LoopThread, Slow]) -> None:
    loop, work = stopping
    assert not loop.stop(timeout_s=0.0)
    loop.start()
    assert not loop.stop(timeout_s=0.0)
    assert work.ended == 0
    work.released.set()
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.begun, work.ended) == (LoopState.STOPPED, 1, 1)


def test_work_that_fails_as_it_ends_is_not_begun_again(run: Run) -> None:
    work = Slow(fails=True)
    work.released.set()
    loop = run(work)
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.begun, work.ended) == (LoopState.STOPPED, 1, 1)


def test_one_that_was_never_started_is_stopped() -> None:
    loop = LoopThread(Endless())
    assert loop.stop()
    assert loop.state is LoopState.STOPPED


def test_what_fails_is_told_and_begun_again() -> None:
    failures = iter(["no answer from the service\nat all", "again"])
    told: list[tuple[LoopState, str | None]] = []
    endless = Endless()

    async def work(begun: Callable[[], None]) -> None:
        told.append((loop.state, loop.error))
        if (reason := next(failures, None)) is not None:
            raise ExceptionGroup("unhandled errors", [OSError(reason)])
        await endless(begun)

    loop = LoopThread(work, again_s=0.01)
    loop.start()
    wait_for(lambda: loop.state, lambda state: state is LoopState.RUNNING, what="running work")
    assert told == [
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
