"""Calls that wait for somebody else: one of a kind at a time, and whoever has waited long enough goes on without."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from deploy.common.errors import UnreachableError
from deploy.common.thread_calls import BlockingCalls
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


class Silent:
    """Somebody who answers only once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.calls = self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def ask(self, what: str) -> str:
        with self._lock:
            self.calls += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.released.wait(PATIENCE_S)
        with self._lock:
            self.at_once -= 1
        return f"{what} answered"


def in_flight(kind: str) -> int:
    return sum(thread.name == f"call: {kind}" for thread in threading.enumerate())


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("call: "):
            thread.join(PATIENCE_S)


async def test_it_answers_and_raises_as_the_call_does() -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    assert await calls.call("sum", sum, [1, 2], start=3) == 6
    with pytest.raises(ValueError, match="invalid literal"):
        await calls.call("number", int, "no number")


async def test_a_time_limit_that_the_call_itself_has_is_its_own() -> None:
    def late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await BlockingCalls(limit_s=PATIENCE_S).call("late", late)


async def test_whoever_does_not_answer_is_asked_once_and_every_caller_goes_on(silent: Silent) -> None:
    calls = BlockingCalls(limit_s=0.0)
    for _ in range(20):
        with pytest.raises(UnreachableError, match="nodes: no answer within 0 s"):
            await calls.call("nodes", silent.ask, "nodes")
    assert in_flight("nodes") == 1


async def test_another_kind_waits_for_nobody(silent: Silent) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    waiting = asyncio.create_task(calls.call("nodes", silent.ask, "nodes"))
    await asyncio.sleep(0)
    assert await calls.call("runs", str, "answered") == "answered"
    silent.released.set()
    assert await waiting == "nodes answered"


async def test_a_caller_that_was_cancelled_leaves_its_call_and_the_next_waits_for_the_end_of_it(silent: Silent) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0):
            await calls.call("nodes", silent.ask, "first")
    later = [asyncio.create_task(calls.call("nodes", silent.ask, f"later {number}")) for number in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert in_flight("nodes") == 1
    silent.released.set()
    assert await asyncio.gather(*later) == [f"later {number} answered" for number in range(3)]
    assert (silent.calls, silent.most_at_once) == (4, 1)


async def test_what_goes_wrong_after_everybody_gave_up_is_nobodys_matter_and_the_next_one_is_asked(
    silent: Silent,
) -> None:
    calls = BlockingCalls(limit_s=PATIENCE_S)

    def breaks() -> None:
        silent.ask("breaks")
        raise OSError("too late")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0):
            await calls.call("nodes", breaks)
    silent.released.set()
    assert await calls.call("nodes", str, "well again") == "well again"


def test_a_call_that_never_returns_does_not_keep_its_loop_from_ending(silent: Silent) -> None:
    async def ask() -> None:
        with pytest.raises(UnreachableError):
            await BlockingCalls(limit_s=0.0).call("nodes", silent.ask, "nodes")

    asyncio.run(ask())
    assert in_flight("nodes") == 1
