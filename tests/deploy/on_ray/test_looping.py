"""Work in a thread of its own: it begins again after whatever ended it, and ends well when told to."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from deploy.on_ray.looping import LoopThread, Work
from deploy.on_ray.wire import HostState
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
    wait_for(lambda: loop.state, lambda state: state is HostState.RUNNING, what="running work")
    loop.start()
    assert loop.stop(timeout_s=PATIENCE_S)
    assert (loop.state, work.begun, work.ended) == (HostState.STOPPED, 1, 1)
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
    assert loop.state is HostState.STOPPED
    assert work.begun == work.ended


def test_one_that_was_never_started_is_stopped() -> None:
    loop = LoopThread(Endless())
    assert loop.stop()
    assert loop.state is HostState.STOPPED


def test_what_fails_is_told_and_begun_again() -> None:
    failures = iter(["no answer from the service\nat all", "again"])
    told: list[tuple[HostState, str | None]] = []
    endless = Endless()

    async def work(begun: Callable[[], None]) -> None:
        told.append((loop.state, loop.error))
        if (reason := next(failures, None)) is not None:
            raise ExceptionGroup("unhandled errors", [OSError(reason)])
        await endless(begun)

    loop = LoopThread(work, again_s=0.01)
    loop.start()
    wait_for(lambda: loop.state, lambda state: state is HostState.RUNNING, what="running work")
    assert told == [
        (HostState.STARTING, None),
        (HostState.FAILED, "no answer from the service"),
        (HostState.FAILED, "again"),
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
