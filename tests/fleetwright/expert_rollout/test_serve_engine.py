"""A draining replica: its requests go to siblings or wait, and none of them fails."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pytest

from fleetwright.expert_rollout.messages import KEY, RolloutCommand
from fleetwright.serve import Part
from tests.deploy.expert_rollout.replica_group import NEW, EngineDouble
from tests.deploy.router.engine import Engine

pytest.importorskip("ray.serve", reason="the extra `ray`")

from ray.serve.exceptions import RayServeException

from fleetwright.expert_rollout import serve_engine
from fleetwright.expert_rollout.serve_engine import DRAINING_HEADER, MapReplica

pytestmark = pytest.mark.anyio

ME = b"me"
BODY = b'{"max_tokens": 2, "stream": true}'
FROM_SIBLING: list[Part] = [(200, [(b"content-type", b"text/plain")]), b"from ", b"a sibling"]


class ReplicaDiedError(RayServeException):  # type: ignore[misc]
    """The replica has died."""


@dataclass
class Answer:
    """A handle's response: its parts in order; an exception among them is raised."""

    parts: list[Any]
    cancelled: bool = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        if not self.parts:
            raise StopAsyncIteration
        part = self.parts.pop(0)
        if isinstance(part, Exception):
            raise part
        return part

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Siblings:
    """A handle of the replica's own deployment; `itself` selects the calling replica."""

    answers: list[list[Any] | str] = field(default_factory=list)
    replica: MapReplica | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    returned: list[Answer] = field(default_factory=list)

    def options(self, **_options: Any) -> Self:
        return self

    def remote(self, *call: Any) -> Any:
        self.calls.append(call)
        planned = self.answers.pop(0) if self.answers else "itself"
        if isinstance(planned, str):
            assert self.replica is not None
            return _Cancellable(self.replica.answer_openai(*call))
        answer = Answer(list(planned))
        self.returned.append(answer)
        return answer


class _Cancellable:
    def __init__(self, parts: AsyncIterator[Part]) -> None:
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[Part]:
        return self._parts

    def cancel(self) -> None:
        """Nothing to cancel: a draining replica responds with one part."""


@pytest.fixture
def siblings(monkeypatch: pytest.MonkeyPatch) -> Siblings:
    found = Siblings()
    context = SimpleNamespace(deployment="engine", app_name="chat", replica_id=SimpleNamespace(unique_id=ME.decode()))
    double = SimpleNamespace(get_replica_context=lambda: context, get_deployment_handle=lambda *_names: found)
    monkeypatch.setattr(serve_engine, "serve", double)
    monkeypatch.setattr(serve_engine, "PAUSES_S", (0.0,))
    return found


@pytest.fixture
def engine() -> EngineDouble:
    found = EngineDouble()
    found.gate = asyncio.Event()
    return found


@pytest.fixture
def app() -> Engine:
    return Engine("own")


@pytest.fixture
def replica(siblings: Siblings, engine: EngineDouble, app: Engine) -> Iterator[MapReplica]:
    found = MapReplica(app, engine)
    siblings.replica = found
    yield found
    assert engine.gate is not None
    engine.gate.set()


async def start_draining(replica: MapReplica) -> None:
    command = RolloutCommand(number=1, next=NEW, good=None, turn=ME.decode())
    await replica.reconfigure({KEY: command.document()})


async def answer(replica: MapReplica, headers: list[tuple[bytes, bytes]] | None = None) -> list[Part]:
    async with asyncio.timeout(30):
        return [part async for part in replica.answer_openai("POST", "/v1/chat/completions", headers or [], BODY)]


def is_own(parts: list[Part]) -> bool:
    return b'"on": "own"' in b"".join(part for part in parts if isinstance(part, bytes))


async def test_a_serving_replica_responds_itself(replica: MapReplica, siblings: Siblings) -> None:
    assert is_own(await answer(replica))
    assert is_own(await answer(replica, [(DRAINING_HEADER, b"another")])), "forwarded by a draining replica"
    assert siblings.calls == []


async def test_a_draining_replica_forwards_requests(replica: MapReplica, siblings: Siblings, app: Engine) -> None:
    await start_draining(replica)
    siblings.answers = [FROM_SIBLING]
    assert await answer(replica, [(b"x", b"1")]) == FROM_SIBLING
    assert siblings.calls == [("POST", "/v1/chat/completions", [(b"x", b"1"), (DRAINING_HEADER, ME)], BODY)]
    assert (app.bodies, replica.forwarded) == ([], 1)
    assert not siblings.returned[0].cancelled


async def test_a_draining_replica_retries_when_the_handle_selects_itself(
    replica: MapReplica, siblings: Siblings
) -> None:
    await start_draining(replica)
    assert await answer(replica, [(DRAINING_HEADER, ME)]) == [(421, [(DRAINING_HEADER, ME)])]
    siblings.answers = ["itself", "itself", FROM_SIBLING]
    assert await answer(replica) == FROM_SIBLING
    assert len(siblings.calls) == 3


async def test_a_sibling_that_dies_before_its_response_is_replaced(replica: MapReplica, siblings: Siblings) -> None:
    await start_draining(replica)
    siblings.answers = [[ReplicaDiedError()], [], FROM_SIBLING]
    assert await answer(replica) == FROM_SIBLING


async def test_a_sibling_that_dies_during_its_response_fails_the_request(
    replica: MapReplica, siblings: Siblings
) -> None:
    await start_draining(replica)
    siblings.answers = [[FROM_SIBLING[0], ReplicaDiedError()]]
    with pytest.raises(ReplicaDiedError):
        await answer(replica)


async def test_without_a_sibling_the_request_waits_until_the_replica_serves_again(
    replica: MapReplica, siblings: Siblings, engine: EngineDouble, app: Engine
) -> None:
    await start_draining(replica)
    waiting = asyncio.create_task(answer(replica))
    while len(siblings.calls) < 3:
        await asyncio.sleep(0)
    assert app.bodies == []
    assert engine.gate is not None
    engine.gate.set()
    assert is_own(await waiting)


async def test_a_cancelled_request_cancels_the_siblings_response(replica: MapReplica, siblings: Siblings) -> None:
    await start_draining(replica)
    siblings.answers = [FROM_SIBLING]
    parts: Any = replica.answer_openai("POST", "/", [], BODY)
    await anext(parts)
    await anext(parts)
    await parts.aclose()
    assert siblings.returned[0].cancelled


async def test_a_request_in_progress_delays_the_map_change(replica: MapReplica, engine: EngineDouble) -> None:
    parts: Any = replica.answer_openai("POST", "/", [], BODY)
    await anext(parts)
    await start_draining(replica)
    for _ in range(10):
        await asyncio.sleep(0)
    assert engine.loads == []
    assert is_own([part async for part in parts])
    while not engine.loads:
        await asyncio.sleep(0)
    assert engine.loads == [NEW.text()]
