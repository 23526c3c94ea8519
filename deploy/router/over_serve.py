"""Deployments of the same Ray Serve application, by their handles.  Serve picks the replica.

The engine's side is one method, an asynchronous generator (`deploy.router.engine_side` makes it of any ASGI
application): it yields status and headers first, then the parts of the body.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deploy.router.openai import Question
from deploy.router.refusals import UpstreamError
from deploy.router.upstream import Head

METHOD = "answer_openai"


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
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
            status, headers = asking.result()
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise UpstreamError(f"{self._name} did not answer: {type(error).__name__}") from error
        except asyncio.CancelledError:
            generator.cancel()
            if asking.cancelled():
                raise UpstreamError(f"{self._name} has no replica any more") from None
            asking.cancel()
            raise
        finally:
            self._asking.discard(asking)
        return ServeAnswer(generator, Head(status=status, headers=headers), name=self._name)

    def abandon(self) -> None:
        """Those that wait for a replica, and those that a last one, which drains, has not answered yet."""
        for asking in self._asking:
            asking.cancel()

    async def close(self) -> None:
        """Handles have no end of their own."""
