"""Deployments of the same Ray Serve application, by their handles.  Serve picks the replica.

The engine's side is one method, an asynchronous generator (`fleetwright.serve` makes it of any ASGI
application): it yields status and headers first, then the parts of the body.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deploy.router.errors import UpstreamError
from deploy.router.openai import Question
from deploy.router.upstream import Head

METHOD = "answer_openai"
# One that takes in another user_config (UPDATING) is out for a moment, one that Serve's restarted controller has yet to
# find again (RECOVERING) for none: their requests wait.  One on a draining node (PENDING_MIGRATION) serves on.
PRESENT = ("RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION")


def present(replica_states: Mapping[str, int]) -> int:
    """How many replicas of a deployment serve, or will in a moment, by Serve's count of their states."""
    return sum(replica_states.get(state, 0) for state in PRESENT)


class ServeAnswer:
    """As Serve streams it."""

    def __init__(self, generator: Any, head: Head, *, name: str) -> None:
        self.head = head
        self._generator = generator
        self._name = name
        self._over = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """One per item of the engine's generator."""
        try:
            async for chunk in self._generator:
                yield chunk
        except (RayError, RayServeException) as error:
            raise UpstreamError(f"{self._name} broke off its answer: {type(error).__name__}") from error
        self._over = True

    def close(self) -> None:
        """Cancel it in the replica, where it has not ended."""
        if not self._over:
            self._generator.cancel()


class ServeUpstream:
    """One deployment."""

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._method = handle.options(method_name=METHOD, stream=True)
        self._asking: set[asyncio.Future[Any]] = set()

    async def ask(self, question: Question) -> ServeAnswer:
        """Once a replica has room.  A handle would wait for ever for a deployment that has none (`abandon`)."""
        generator = self._method.remote(question.method, question.target, list(question.headers), question.body)
        asking = asyncio.ensure_future(anext(aiter(generator)))
        asking.add_done_callback(_looked_at)
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:  # by the caller, whatever became of the call meanwhile
            asking.cancel()
            generator.cancel()
            raise
        finally:
            self._asking.discard(asking)
        if asking.cancelled():
            generator.cancel()
            raise UpstreamError(f"{self._name} has no replica any more")
        try:
            status, headers = asking.result()
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise UpstreamError(f"{self._name} did not answer: {type(error).__name__}") from error
        return ServeAnswer(generator, Head(status=status, headers=headers), name=self._name)

    def abandon(self) -> None:
        """Those that wait for a replica, and those that a last one, which drains, has not answered yet."""
        for asking in self._asking:
            asking.cancel()

    async def close(self) -> None:
        """Handles have no end of their own."""


def _looked_at(asking: "asyncio.Future[Any]") -> None:
    """What became of a call whose caller has gone is nobody's affair, and no warning."""
    if not asking.cancelled():
        asking.exception()
