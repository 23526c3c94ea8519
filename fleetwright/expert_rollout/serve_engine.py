"""A Ray Serve deployment whose replicas change their expert maps in turn, behind the router.

    class Engine(MapReplica):
        def __init__(self):
            app = build_app(...)                                    # any ASGI application
            super().__init__(app, LiveFile(path, shape=EngineShape(engine="vllm", ...)))

A draining replica forwards the requests that Serve still sends it to a sibling, before any part of a response.  Serve
picks the sibling and may pick the same replica, which then reports this in a response header; the request is retried a
little later.  Without another replica the response comes when this one serves again.  No request fails.

`StatusEndpoint` serves the status of all replicas at the application's ingress:

    GET /fleetwright/expert-maps?deployment=on-h100      {"replicas": [{...}, ...]}

Serve does not address single replicas for a caller; a handle inside the application reaches all that take requests.
The response reveals loaded placements, so the outer gateway should not forward this path.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast
from urllib.parse import parse_qs

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from fleetwright.expert_rollout.engines import MapEngine
from fleetwright.expert_rollout.replica_agent import DRAIN_S, ReplicaAgent
from fleetwright.serve import METHOD, AsgiApp, Part, Send, send_json, stream_response

STATUS_METHOD = "expert_map_status"
# In a response: this replica is draining.  In a request: forwarded by this replica.
DRAINING_HEADER = b"x-fleetwright-out"
PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
MISDIRECTED = 421
Headers = list[tuple[bytes, bytes]]
PATH = "/fleetwright/expert-maps"
PATIENCE_S = 5.0


class MapReplica:
    """One replica: an ASGI application, and the agent of its engine's map."""

    def __init__(self, app: AsgiApp, engine: MapEngine, *, drain_s: float = DRAIN_S) -> None:
        context = serve.get_replica_context()
        self._app = app
        self._agent = ReplicaAgent(engine, replica_id=context.replica_id.unique_id, drain_s=drain_s)
        self._home = (context.deployment, context.app_name)
        self._sibling_handle: Any = None
        self.forwarded = 0  # requests forwarded to siblings

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Serve's hook for user_config; subclasses may use other keys."""
        await self._agent.receive(user_config)

    async def check_health(self) -> None:
        self._agent.check_health()

    async def expert_map_status(self) -> dict[str, Any]:
        return self._agent.status()

    async def answer_openai(self, method: str, target: str, headers: Headers, body: bytes) -> AsyncIterator[Part]:
        """Yield the parts of a response; the router calls this method."""
        me = (DRAINING_HEADER, self._agent.replica_id.encode())
        if self._agent.draining and me in headers:
            yield MISDIRECTED, [me]
            return
        parts = self._serve_locally(method, target, headers, body)
        if self._agent.draining:
            parts = self._forward_to_sibling(method, target, [*headers, me], body)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def _serve_locally(
        self, method: str, target: str, headers: Headers, body: bytes
    ) -> AsyncGenerator[Part, None]:
        own = [(name, value) for name, value in headers if name != DRAINING_HEADER]
        response = cast("AsyncGenerator[Part, None]", stream_response(self._app, method, target, own, body))
        async with self._agent.request_in_progress(), aclosing(response) as parts:
            async for part in parts:
                yield part

    async def _forward_to_sibling(
        self, method: str, target: str, headers: Headers, body: bytes
    ) -> AsyncGenerator[Part, None]:
        pauses_s = iter(PAUSES_S)
        while self._agent.draining:
            generator = self._sibling().remote(method, target, headers, body)
            try:
                head = await anext(aiter(generator))
            except (RayError, RayServeException, StopAsyncIteration):
                head = (MISDIRECTED, [headers[-1]])  # it died before any part of a response
            if not _is_draining(head):
                self.forwarded += 1
                async with _SiblingResponse(generator) as rest:
                    yield head
                    async for part in rest:
                        yield part
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._agent.serving_again(), next(pauses_s, PAUSES_S[-1]))
        async with aclosing(self._serve_locally(method, target, headers, body)) as parts:
            async for part in parts:
                yield part

    def _sibling(self) -> Any:
        if self._sibling_handle is None:
            deployment, application = self._home
            handle: Any = serve.get_deployment_handle(deployment, application)
            self._sibling_handle = handle.options(method_name=METHOD, stream=True)
        return self._sibling_handle


class _SiblingResponse:
    """The rest of a sibling's response, cancelled there when the caller leaves early."""

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


class StatusEndpoint:
    def __init__(self, handles: Mapping[str, Any], *, patience_s: float = PATIENCE_S) -> None:
        self._handles = handles
        self._patience_s = patience_s

    async def __call__(self, scope: Mapping[str, Any], send: Send) -> None:
        names = parse_qs(scope["query_string"].decode("latin-1")).get("deployment", [])
        handle = self._handles.get(names[0]) if len(names) == 1 else None
        if scope["method"] != "GET":
            await send_json(send, 405, {"error": "allowed: GET"})
        elif handle is None:
            await send_json(send, 404, {"error": f"deployment must be one of: {', '.join(sorted(self._handles))}"})
        else:
            await self._send_statuses(handle, send)

    async def _send_statuses(self, handle: Any, send: Send) -> None:
        try:
            replicas = await replica_statuses(handle, patience_s=self._patience_s)
        except TimeoutError:
            await send_json(send, 504, {"error": f"some replicas did not respond within {self._patience_s:g} s"})
        except (RayError, RayServeException) as error:
            await send_json(send, 503, {"error": f"the replicas are unreachable: {type(error).__name__}"})
        else:
            await send_json(send, 200, {"replicas": replicas})


async def replica_statuses(handle: Any, *, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Return the status of each replica behind a handle; failing replicas are left out."""
    results = await handle.broadcast(STATUS_METHOD).results_async(timeout_s=patience_s, return_exceptions=True)
    return [response for response in results if isinstance(response, dict)]


def _is_draining(head: Part) -> bool:
    return not isinstance(head, bytes) and any(name == DRAINING_HEADER for name, _ in head[1])
