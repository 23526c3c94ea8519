"""Deployments of the same Ray Serve application, by their handles.  Serve chooses the replica.

The engine implements one asynchronous generator (`fleetwright.serve` makes it from any ASGI application): it yields
status and headers first, then the parts of the body.
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
# A replica that takes another user_config (UPDATING) is out of routing for a moment, and one that a restarted Serve
# controller has yet to find (RECOVERING) is not; requests wait.  One on a draining node (PENDING_MIGRATION) serves.
PRESENT = ("RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION")


def present(replica_states: Mapping[str, int]) -> int:
    """Return the replicas of a deployment that serve now or in a moment, by Serve's counts of replica states."""
    return sum(replica_states.get(state, 0) for state in PRESENT)


class ServeAnswer:
    """A response that Serve streams."""

    def __init__(self, generator: Any, head: Head, *, name: str) -> None:
        self.head = head
        self._generator = generator
        self._name = name
        self._over = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the items of the engine's generator."""
        try:
            async for chunk in self._generator:
                yield chunk
        except (RayError, RayServeException) as error:
            raise UpstreamError(f"{self._name} failed during its response: {type(error).__name__}") from error
        self._over = True

    def close(self) -> None:
        """Cancel the request in the replica where it has not ended."""
        if not self._over:
            self._generator.cancel()


class ServeUpstream:
    """Sends requests to one deployment on Serve."""

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._method = handle.options(method_name=METHOD, stream=True)
        self._asking: set[asyncio.Future[Any]] = set()

    async def ask(self, question: Question) -> ServeAnswer:
        """Send once a replica has a slot.  Without a replica, a handle waits for ever (see `abandon`)."""
        generator = self._method.remote(question.method, question.target, list(question.headers), question.body)
        asking = asyncio.ensure_future(anext(aiter(generator)))
        asking.add_done_callback(_looked_at)
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:  # by the caller, in any state of the call
            asking.cancel()
            generator.cancel()
            raise
        finally:
            self._asking.discard(asking)
        if asking.cancelled():
            generator.cancel()
            raise UpstreamError(f"{self._name} has no replica")
        try:
            status, headers = asking.result()
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise UpstreamError(f"{self._name} did not respond: {type(error).__name__}") from error
        return ServeAnswer(generator, Head(status=status, headers=headers), name=self._name)

    def abandon(self) -> None:
        """Cancel requests that wait for a replica or for the response of a last one that drains."""
        for asking in self._asking:
            asking.cancel()

    async def close(self) -> None:
        """Handles need no closing."""


def _looked_at(asking: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a call whose caller has gone, so that asyncio does not log it."""
    if not asking.cancelled():
        asking.exception()
