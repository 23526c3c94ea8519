"""Blocking calls in threads: one call per kind at a time, with a time limit for each caller."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from deploy.common.errors import UnreachableError
from deploy.common.thread_calls import BlockingCalls
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


class BlockedCall:
    """A blocking call that returns only after its release."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.calls = self.at_once = self.max_at_once = 0
        self._lock = threading.Lock()

    def run(self, what: str) -> str:
        with self._lock:
            self.calls += 1
            self.at_once += 1
            self.max_at_once = max(self.max_at_once, self.at_once)
        self.released.wait(PATIENCE_S)
        with self._lock:
            self.at_once -= 1
        return f"{what} answered"


def in_flight(kind: str) -> int:
    return sum(thread.name == f"call: {kind}" for thread in threading.enumerate())


@pytest.fixture
def blocked() -> Iterator[BlockedCall]:
    blocked = BlockedCall()
    yield blocked
    blocked.released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("call: "):
            thread.join(PATIENCE_S)


async def test_the_result_or_error_of_the_call_is_passed_on() -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    assert await calls.call("sum", sum, [1, 2], start=3) == 6
    with pytest.raises(ValueError, match="invalid literal"):
        await calls.call("number", int, "no number")


async def test_a_timeout_raised_by_the_call_itself_is_passed_on() -> None:
    def late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await BlockingCalls(limit_s=PATIENCE_S).call("late", late)


async def test_a_blocked_call_runs_once_and_every_caller_times_out(blocked: BlockedCall) -> None:
    calls = BlockingCalls(limit_s=0.0)
    for _ in range(20):
        with pytest.raises(UnreachableError, match="nodes: no response within 0 s"):
            await calls.call("nodes", blocked.run, "nodes")
    assert in_flight("nodes") == 1


async def test_a_blocked_call_does_not_delay_calls_of_another_kind(blocked: BlockedCall) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    waiting = asyncio.create_task(calls.call("nodes", blocked.run, "nodes"))
    await asyncio.sleep(0)
    assert await calls.call("runs", str, "answered") == "answered"
    blocked.released.set()
    assert await waiting == "nodes answered"


async def test_the_next_call_waits_for_the_call_of_a_cancelled_caller(blocked: BlockedCall) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0):
            await calls.call("nodes", blocked.run, "first")
    later = [asyncio.create_task(calls.call("nodes", blocked.run, f"later {number}")) for number in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert in_flight("nodes") == 1
    blocked.released.set()
    assert await asyncio.gather(*later) == [f"later {number} answered" for number in range(3)]
    assert (blocked.calls, blocked.max_at_once) == (4, 1)


async def test_a_failure_after_the_caller_timed_out_is_dropped_and_the_next_call_runs(
    blocked: BlockedCall,
) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)

    def breaks() -> None:
        blocked.run("breaks")
        raise OSError("too late")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0):
            await calls.call("nodes", breaks)
    blocked.released.set()
    assert await calls.call("nodes", str, "recovered") == "recovered"


def test_a_blocked_call_does_not_keep_the_event_loop_from_closing(blocked: BlockedCall) -> None:
    async def ask() -> None:
        with pytest.raises(UnreachableError):
            await BlockingCalls(limit_s=0.0).call("nodes", blocked.run, "nodes")

    asyncio.run(ask())
    assert in_flight("nodes") == 1
