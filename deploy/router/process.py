"""The router as a process, before engines on HTTP.

It reads the file of its table again when the file changes (a mounted ConfigMap, an editor, `mv`).  An unusable file is
logged once, and the old table stays.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from pydantic import Field, ValidationError, model_validator

from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.common.errors import PlanUnusableError
from deploy.common.http_server import ServerTls
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.router.errors import UpstreamError
from deploy.router.metrics import PrometheusBackend
from deploy.router.openai import ProxiedRequest
from deploy.router.pods import PodEngines, PodReplicas
from deploy.router.proxy import Head
from deploy.router.router import Router
from deploy.router.settings import PowerSource, RouterSettings, Url
from deploy.router.table import RouteName, RoutingTable
from fleet.documents import Frozen, RuleError

log = structlog.get_logger()

CONNECT_S = 3.0
KEEP_ALIVE_S = 4.0  # less than the 5 s after which uvicorn, which most engines run on, closes an idle connection
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 10.0  # of an address that did not respond
_OUR_OWN = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # headers that aiohttp would add
TICK_S = 1.0
MAX_RESPONSE_S = 900


class HttpUpstreamResponse:
    def __init__(self, response: Any, *, name: str, ended: Callable[[], None]) -> None:
        self.head = Head(status=response.status, headers=response.raw_headers)
        self._response = response
        self._name = name
        self._ended: Callable[[], None] | None = ended

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _failures() as error:
            raise UpstreamError(f"{self._name} failed during its response: {_reason(error)}") from error

    def close(self) -> None:
        self._response.close()
        if self._ended is not None:
            self._ended()
            self._ended = None


class HttpUpstream:
    """Sends requests to one deployment of engines on HTTP, each replica at its own address.

    aiohttp comes with the extra `ray` and uses a fifth of httpx's CPU time for these requests.  Responses are not
    decompressed, redirects are not followed, and cookies are not kept.
    """

    def __init__(self, name: str, urls: Sequence[str], *, silence_s: float, clock: Clock | None = None) -> None:
        """`silence_s`: the longest time between two parts of a response, the first included."""
        import aiohttp  # noqa: PLC0415 - an extra

        self._name = name
        self._clock = clock or Clock()
        self._in_flight: dict[str, int] = {}
        self._receiving: list[str] = []
        self._backoff = Backoff(first_s=FIRST_BACKOFF_S, max_s=MAX_BACKOFF_S)
        self.set_urls(urls)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s),
            auto_decompress=False,
            skip_auto_headers=_OUR_OWN,
            trust_env=False,
        )

    def set_urls(self, urls: Iterable[str]) -> None:
        """Send new requests to these addresses only; requests in flight elsewhere continue."""
        self._receiving = [url.rstrip("/") for url in urls]
        counts = {url: count for url, count in self._in_flight.items() if count}
        self._in_flight = dict.fromkeys(self._receiving, 0) | counts
        self._backoff.forget_all_but(self._in_flight)

    async def send(self, request: ProxiedRequest) -> HttpUpstreamResponse:
        """Send to the address with the fewest requests in flight, among those that responded last time."""
        if not self._receiving:
            raise UpstreamError(f"{self._name} has no address")
        url = self._least_loaded()
        self._in_flight[url] += 1
        try:
            response = await self._request(url, request)
        except _failures() as error:
            self._in_flight[url] -= 1
            self._backoff.failed(url, now_s=self._clock.steady_s())
            raise UpstreamError(f"{self._name} did not respond: {_reason(error)}") from error
        except BaseException:
            self._in_flight[url] -= 1
            raise
        self._backoff.succeeded(url)
        return HttpUpstreamResponse(response, name=self._name, ended=lambda: self._ended(url))

    def abandon(self) -> None:
        """Connections of engines that are gone close by themselves."""

    async def close(self) -> None:
        await self._session.close()

    async def _request(self, url: str, request: ProxiedRequest) -> Any:
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        return await self._session.request(
            request.method,
            _address(URL(url), request.target),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers],
            data=request.body or None,
            allow_redirects=False,
        )

    def _least_loaded(self) -> str:
        now_s = self._clock.steady_s()
        awake = [url for url in self._receiving if self._backoff.is_due(url, now_s=now_s)]
        return min(awake or self._receiving, key=self._in_flight.__getitem__)

    def _ended(self, url: str) -> None:
        self._in_flight[url] -= 1


class RouterFile(Frozen):
    """The configuration of the router's process."""

    engines: dict[RouteName, tuple[Url, ...] | PodEngines] = Field(
        min_length=1,
        max_length=100,
        description="Deployment, named as the table's routes -> URLs of its replicas, or their pods.",
    )
    table_file: Path
    settings: RouterSettings = RouterSettings()
    watts: PowerSource | None = None
    silence_s: float = Field(default=600.0, gt=0, le=86_400, description="Between two parts of a response.")

    @property
    def urls(self) -> Mapping[str, tuple[Url, ...]]:
        return {name: () if isinstance(found, PodEngines) else found for name, found in self.engines.items()}

    @property
    def pods(self) -> Mapping[str, PodEngines]:
        return {name: found for name, found in self.engines.items() if isinstance(found, PodEngines)}

    @model_validator(mode="after")
    def _has_addresses(self) -> "RouterFile":
        RuleError.raise_for(
            (("engines", name), "allowed: at least one address")
            for name, urls in self.urls.items()
            if not urls and name not in self.pods
        )
        return self


class TableFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = b""

    def read(self) -> RoutingTable:
        self._content = self._path.read_bytes()
        return RoutingTable.model_validate_json(self._content)

    def changed(self) -> RoutingTable | None:
        """Return the table, if the file changed since it was read; an unusable file raises once."""
        return None if self._path.read_bytes() == self._content else self.read()


async def follow(router: Router, file: TableFile, *, clock: Clock) -> None:
    missing = False
    while True:
        await clock.sleep(TICK_S)
        try:
            table = file.changed()
            missing = False
            if table is not None:
                await router.take(table)
        except OSError as error:
            if not missing:
                log.warning("table_not_readable", reason=str(error))
            missing = True
        except (ValidationError, PlanUnusableError) as error:
            if isinstance(error, ValidationError):
                router.metrics.table_refused()
            log.warning("table_refused", reason=str(error))


async def run_router(
    config: RouterFile,
    listener: socket.socket,
    *,
    registry: CollectorRegistry,
    clock: Clock | None = None,
    tls: ServerTls | None = None,
) -> None:
    """Serve until SIGTERM, and then until every request in flight has its response."""
    clock, file = clock or Clock(), TableFile(config.table_file)
    upstreams = {name: HttpUpstream(name, urls, silence_s=config.silence_s) for name, urls in config.urls.items()}
    async with AsyncExitStack() as connections:
        replicas = None
        if config.pods:
            kube = await connections.enter_async_context(kubernetes_server(KubernetesAccess()))
            replicas = PodReplicas(kube, config.pods, upstreams, config.settings.routers)
        router = Router(
            table=file.read(),
            upstreams=upstreams,
            settings=config.settings,
            backend=PrometheusBackend(registry),
            count_replicas=replicas,
            clock=clock,
        )
        router.set_power_source(config.watts)
        following = asyncio.create_task(follow(router, file, clock=clock))
        try:
            await _server(router, tls=tls).serve(sockets=[listener])
        finally:
            following.cancel()


def _address(base: Any, target: str) -> Any:
    """Return the target below the replica's address; the target cannot change scheme, host or port."""
    path, _, query = target.partition("?")
    below = f"{base.raw_path.rstrip('/')}/{path.removeprefix('/')}"
    return type(base).build(
        scheme=base.scheme, authority=base.raw_authority, path=below, query_string=query, encoded=True
    )


def _failures() -> tuple[type[Exception], ...]:
    import aiohttp  # noqa: PLC0415 - an extra

    return aiohttp.ClientError, OSError, asyncio.TimeoutError


def _reason(error: Exception) -> str:
    """Return the reason without the address, which callers must not get."""
    return type(error).__name__


def _server(router: Router, *, tls: ServerTls | None) -> uvicorn.Server:
    config = uvicorn.Config(
        router,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the engine's header is forwarded
        timeout_graceful_shutdown=MAX_RESPONSE_S,
    )
    return uvicorn.Server(config)
