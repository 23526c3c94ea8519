"""A router driven by ASGI messages, with request bodies split at any position."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.router.errors import UpstreamError
from deploy.router.metrics import PrometheusBackend
from deploy.router.openai import ProxiedRequest
from deploy.router.proxy import Head, Upstream
from deploy.router.router import Router
from deploy.router.settings import RouterSettings
from deploy.router.table import RoutingTable

CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
JSON, EVENTS = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")


@dataclass
class Exchange:
    """The messages of the response to one request."""

    sent: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def chunks(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:] if message.get("body")]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def whole(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", False) and len(self.sent) > 1


@dataclass
class ScriptedAnswer:
    """A response whose parts are sent in order; an event is awaited, an exception is raised."""

    head: Head
    parts: Sequence[bytes | Exception | asyncio.Event]
    closed: int = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, asyncio.Event):
                await part.wait()
            elif isinstance(part, Exception):
                raise part
            else:
                yield part
                await asyncio.sleep(0)

    def close(self) -> None:
        self.closed += 1


@dataclass
class Scripted:
    """A deployment with scripted responses that records its requests."""

    parts: Sequence[bytes | Exception | asyncio.Event] = (b"{}",)
    headers: Sequence[tuple[bytes, bytes]] = (JSON,)
    status: int = 200
    failures: list[Exception] = field(default_factory=list)  # raised before the first response
    requests: list[ProxiedRequest] = field(default_factory=list)
    answers: list[ScriptedAnswer] = field(default_factory=list)
    closed: bool = False
    abandoned: int = 0

    async def send(self, request: ProxiedRequest) -> ScriptedAnswer:
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        answer = ScriptedAnswer(Head(status=self.status, headers=self.headers), self.parts)
        self.answers.append(answer)
        return answer

    def abandon(self) -> None:
        self.abandoned += 1

    async def close(self) -> None:
        self.closed = True


@dataclass
class Bed:
    """A router before some deployments."""

    router: Router
    registry: CollectorRegistry

    async def post(
        self,
        body: bytes = CHAT,
        *,
        path: str = "/v1/chat/completions",
        headers: Sequence[tuple[bytes, bytes]] = (),
        cuts: Sequence[int] = (),
        method: str = "POST",
        gone: asyncio.Event | None = None,
        root: str = "",
        raw: bool = True,
    ) -> Exchange:
        """Send one request, its body split at `cuts`; the caller disconnects at `gone`."""
        exchange = Exchange()
        edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
        parts = [body[a:b] for a, b in itertools.pairwise(edges)]
        coming = [{"type": "http.request", "body": p, "more_body": True} for p in parts[:-1]]
        coming.append({"type": "http.request", "body": parts[-1], "more_body": False})

        async def receive() -> Mapping[str, Any]:
            if coming:
                return coming.pop(0)
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            exchange.sent.append(dict(message))

        request_scope = scope(method, path, headers) | {"root_path": root}
        if not raw:
            del request_scope["raw_path"]
        await self.router(request_scope, receive, send)  # type: ignore[arg-type] # mappings suffice
        return exchange

    def counted(self, name: str, **labels: str) -> float:
        """The value of a metric; 0 if it was never counted."""
        return self.registry.get_sample_value(f"fleetwright_router_{name}", labels) or 0.0


def scope(method: str, path: str, headers: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    plain, _, query = path.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": plain,
        "raw_path": plain.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"router"), *headers],
    }


def bed(
    table: RoutingTable,
    upstreams: Mapping[str, Upstream],
    *,
    clock: Callable[[], float] | None = None,
    **settings: Any,
) -> Bed:
    registry = CollectorRegistry()
    router = Router(
        table=table,
        upstreams=upstreams,
        settings=RouterSettings.model_validate(settings),
        backend=PrometheusBackend(registry),
        clock=replace(Clock(), steady_s=clock) if clock else None,
    )
    return Bed(router, registry)


def lost(message: str = "a failed during its response") -> UpstreamError:
    return UpstreamError(message)
