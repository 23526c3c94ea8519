"""One emulated engine on HTTP: the paths of an OpenAI-compatible server, its health and its page of metrics."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field, model_validator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.common.clock import Clock
from deploy.emulator.metric_pages import VERSIONS, EngineName, MetricPage, SglangPage, VllmPage
from deploy.emulator.openai_protocol import JSON, refusal
from deploy.emulator.openai_worker import OpenAIWorker, Part, TokenSource
from deploy.emulator.worker import TICK_S, Name, UnavailableError, WorkerLoop, WorkerSpec
from fleet.documents import RuleError
from fleet.models import builtin_models

LOOPBACK = "127.0.0.1"
GRACE_S = 1  # for responses in flight when a listener closes; a drained engine has none
TEXT = (b"content-type", CONTENT_TYPE_LATEST.encode())


class EngineSpec(WorkerSpec):
    """An engine process: a worker, and the engine whose metrics it exports."""

    engine: EngineName = Field(default="vllm", description="Whose metrics are exported.")
    engine_version: str | None = Field(default=None, description="Whose names are used; absent: the newest known.")
    served_name: Name | None = Field(default=None, description="Label `model_name`; absent: `model`.")
    max_model_len: int | None = Field(default=None, ge=2, le=10_000_000, description="Absent: the model's context.")

    @model_validator(mode="after")
    def _known_version(self) -> Self:
        known = VERSIONS[self.engine]
        if self.engine_version is not None and self.engine_version not in known:
            message = f"unknown version {self.engine_version!r} of {self.engine}; allowed: {', '.join(known)}"
            raise RuleError([(("engine_version",), message)])
        return self

    @property
    def label(self) -> str:
        return self.served_name or self.model

    def page(self, *, cache_tokens: int) -> MetricPage:
        version = self.engine_version or VERSIONS[self.engine][-1]
        if self.engine == "sglang":
            engine_type = "unified" if self.role == "both" else self.role
            return SglangPage(model=self.label, engine_type=engine_type, version=version)
        return VllmPage(
            model=self.label,
            cache_tokens=cache_tokens,
            max_model_len=self.max_model_len or builtin_models().get(self.model).max_context_tokens or cache_tokens,
            decode_only=self.role == "decode",
            version=version,
        )


@dataclass(slots=True, kw_only=True)
class HttpEngine:
    """An engine that answers requests at an address of its own."""

    spec: EngineSpec
    name: str = "engine"
    clock: Clock = field(default_factory=Clock)
    tick_s: float = TICK_S
    through: Callable[[TokenSource], TokenSource] = lambda source: source  # that requests pass
    loop: WorkerLoop = field(init=False)
    openai: OpenAIWorker = field(init=False)
    _page: MetricPage = field(init=False)

    def __post_init__(self) -> None:
        self.loop = WorkerLoop(spec=self.spec, clock=self.clock, tick_s=self.tick_s)
        self._page = self.spec.page(cache_tokens=self.loop.tuned.costs.cache_tokens)
        self.loop.pages = (self._page,)
        timing = {"replica": self.name, "gpu": self.spec.gpu}
        self.openai = OpenAIWorker(self.through(self.loop), model=self.spec.label, timing=timing)

    async def answer(self, method: str, target: str, body: bytes) -> AsyncGenerator[Part, None]:
        path = target.partition("?")[0]
        if method == "GET" and path == "/health":
            yield HTTPStatus.OK.value, []
        elif method == "GET" and path == "/metrics":
            yield HTTPStatus.OK.value, [TEXT]
            yield self._page.text(self.loop.state())
        else:
            async for part in self.openai.answer(method, target, body):
                yield part


@dataclass(frozen=True, slots=True)
class AnswerApp:
    """An ASGI application of a function that yields the parts of an answer; a caller that leaves ends it."""

    answer: Callable[[str, str, bytes], AsyncGenerator[Part, None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        answering = asyncio.ensure_future(self._send(scope["method"], target, body, send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _send(self, method: str, target: str, body: bytes, send: Send) -> None:
        begun = False
        try:
            async with aclosing(self.answer(method, target, body)) as parts:
                async for part in parts:
                    begun = True
                    await send(_message(part))
        except UnavailableError as error:
            if begun:
                raise  # the server cuts the connection, as that of a dead process
            await send(_message((HTTPStatus.SERVICE_UNAVAILABLE.value, [JSON])))
            await send(_message(refusal(str(error), HTTPStatus.SERVICE_UNAVAILABLE)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _message(part: Part) -> Message:
    if isinstance(part, bytes):
        return {"type": "http.response.body", "body": part, "more_body": True}
    status, headers = part
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _body(receive: Receive) -> bytes | None:
    """Return the body; None where the caller left."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """One of several servers of a process, which handles the signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Listener:
    """An application at a port of loopback, in the caller's event loop."""

    app: ASGIApp
    port: int = 0  # 0: the system chooses
    _server: _Server | None = None
    _task: "asyncio.Task[None] | None" = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def open(self) -> None:
        listener = socket.create_server((LOOPBACK, self.port), backlog=2048)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def close(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
            self._server = self._task = None
