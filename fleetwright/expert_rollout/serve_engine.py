"""A Ray Serve deployment whose replicas change their expert maps in turn, behind the router.

    class Engine(MapReplica):
        def __init__(self):
            app = build_app(...)                                    # anything that speaks ASGI
            super().__init__(app, LiveFile(path, shape=EngineShape(engine="vllm", ...)))

While a replica is out, the requests that Serve still sends it are passed on to a sibling before anything of an answer
was given.  Serve picks the sibling and may pick the same replica, which says so in the head of its answer and is asked
again a little later; where there is no other, the answer comes when it is back.  No request fails for a change of maps.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from fleetwright.expert_rollout.engines import MapEngine
from fleetwright.expert_rollout.replica_agent import DRAIN_S, ReplicaAgent
from fleetwright.serve import AsgiApp, Part, answered

METHOD, STATUS_METHOD = "answer_openai", "say_expert_map"
OUT = b"x-fleetwright-out"  # in a head: this replica cannot; in a request: passed on by this one
PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
MISDIRECTED = 421

Headers = list[tuple[bytes, bytes]]


class MapReplica:
    """One replica: an ASGI application, and the keeper of its engine's map."""

    def __init__(self, app: AsgiApp, engine: MapEngine, *, drain_s: float = DRAIN_S) -> None:
        context = serve.get_replica_context()
        self._app = app
        self._agent = ReplicaAgent(engine, replica_id=context.replica_id.unique_id, drain_s=drain_s)
        self._home = (context.deployment, context.app_name)
        self._siblings: Any = None
        self.passed_on = 0  # requests that siblings were given while this one was out

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Serve's hook for user_config; other keys are for who extends this."""
        await self._agent.hear(user_config)

    async def check_health(self) -> None:
        """Serve's hook."""
        self._agent.check_health()

    async def say_expert_map(self) -> dict[str, Any]:
        """What the ingress asks of all replicas."""
        return self._agent.status()

    async def answer_openai(self, method: str, target: str, headers: Headers, body: bytes) -> AsyncIterator[Part]:
        """What the router calls."""
        me = (OUT, self._agent.replica_id.encode())
        if self._agent.out and me in headers:
            yield MISDIRECTED, [me]
            return
        parts = self._own(method, target, headers, body)
        if self._agent.out:
            parts = self._elsewhere(method, target, [*headers, me], body)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def _own(self, method: str, target: str, headers: Headers, body: bytes) -> AsyncGenerator[Part, None]:
        own = [(name, value) for name, value in headers if name != OUT]
        answer = cast("AsyncGenerator[Part, None]", answered(self._app, method, target, own, body))
        async with self._agent.at_work_on_a_request(), aclosing(answer) as parts:
            async for part in parts:
                yield part

    async def _elsewhere(self, method: str, target: str, headers: Headers, body: bytes) -> AsyncGenerator[Part, None]:
        pauses_s = iter(PAUSES_S)
        while self._agent.out:
            generator = self._sibling().remote(method, target, headers, body)
            try:
                head = await anext(aiter(generator))
            except (RayError, RayServeException, StopAsyncIteration):
                head = (MISDIRECTED, [headers[-1]])  # it died, and nothing of an answer was seen
            if not _is_out(head):
                self.passed_on += 1
                async with _SiblingsAnswer(generator) as rest:
                    yield head
                    async for part in rest:
                        yield part
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._agent.back(), next(pauses_s, PAUSES_S[-1]))
        async with aclosing(self._own(method, target, headers, body)) as parts:
            async for part in parts:
                yield part

    def _sibling(self) -> Any:
        if self._siblings is None:
            deployment, application = self._home
            handle: Any = serve.get_deployment_handle(deployment, application)
            self._siblings = handle.options(method_name=METHOD, stream=True)
        return self._siblings


class _SiblingsAnswer:
    """The rest of it, cancelled there when the caller goes before its end."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._over = False

    async def __aenter__(self) -> AsyncIterator[Part]:
        return self._parts()

    async def __aexit__(self, *_exc: object) -> None:
        if not self._over:
            self._generator.cancel()

    async def _parts(self) -> AsyncIterator[Part]:
        async for part in self._generator:
            yield part
        self._over = True


def _is_out(head: Part) -> bool:
    return not isinstance(head, bytes) and any(name == OUT for name, _ in head[1])
