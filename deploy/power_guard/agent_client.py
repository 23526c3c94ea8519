"""The clients of all agents of a row, polled and commanded concurrently.

A command without a response is sent again in every reconcile until it has one or is replaced; the guard itself uses
read-backs only.  Brake commands are sent first.

A reconcile waits for responses for a bounded time.  Requests in flight then continue, and a late one counts with its
age: cancelling would close connections just when everything is slow.  Every agent has its own client, which costs less
than a pool of many connections.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import httpx
import structlog
from pydantic import ValidationError

from deploy.common.credentials import trust_of
from deploy.common.text import reason_of
from deploy.node_agent.schemas import (
    BEAT_PATH,
    BRAKE_PATH,
    CLOCKS_PATH,
    TELEMETRY_PATH,
    ActuationMode,
    Beat,
    BrakeCommand,
    ClocksCommand,
    MeterReading,
    NodeTelemetry,
)
from deploy.power_guard.config import AgentEntry, GuardFile
from deploy.power_guard.metrics import GuardMetrics, Path
from power.controls import NodeClocks
from power.telemetry import Reading

log = structlog.get_logger()

PATIENCE = 5  # timeout of a request, in multiples of the time that a reconcile waits


class AgentReport(NamedTuple):
    """An agent's report and its time, by this process's monotonic clock."""

    at_s: float
    report: NodeTelemetry


@dataclass(frozen=True, slots=True)
class _PendingCommand:
    """A command without a response yet."""

    path: Path
    method: str
    where: str
    body: Beat


class Agents:
    """All agents of the guard, with the last report of each and the commands pending for each."""

    def __init__(
        self,
        *,
        config: GuardFile,
        token: str | None,
        metrics: GuardMetrics,
        steady_s: Callable[[], float] = time.monotonic,
        server_name: str | None = None,
    ) -> None:
        """`server_name`: in the agents' certificates, where their URLs contain addresses."""
        self._extensions = {"sni_hostname": server_name} if server_name else {}
        self._config = config
        trusted = trust_of(config.agent_tls)
        self._trusted = trusted
        self._urls = [agent.url for agent in config.agents]
        self._clients = {url: client_of(trusted) for url in self._urls}
        if config.meter is not None:
            self._clients.setdefault(config.meter, client_of(trusted if config.agent_tls is None else trust_of(None)))
        self._in_flight: dict[Hashable, asyncio.Task[None]] = {}
        self._metered: Reading | None = None
        self._unreachable: set[str] = set()  # whose last request failed
        self._metrics = metrics
        self._steady_s = steady_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._acting = config.mode is ActuationMode.APPLY
        self._beat = Beat(guard=config.guard, lease_s=config.lease_s)
        self._pending: dict[tuple[int, Path], _PendingCommand] = {}
        self.reports: list[AgentReport | None] = [None] * len(config.agents)

    async def aclose(self) -> None:
        """Close all connections; the leases expire by themselves."""
        for task in self._in_flight.values():
            task.cancel()
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()

    async def move(self, urls: Mapping[str, str]) -> None:
        """Use these URLs for the named agents; a request in flight to an old one ends with an error."""
        for at, agent in enumerate(self._config.agents):
            before, url = self._urls[at], urls.get(agent.name, self._urls[at])
            if url != before:
                self._clients.setdefault(url, client_of(self._trusted))
                self._urls[at] = url
                if before not in self._urls:
                    await self._clients.pop(before).aclose()

    async def poll(self) -> Reading | None:
        """Poll every agent, and the row's own meter if there is one; return its newest reading.

        In mode `apply` polling renews the agents' leases.
        """
        for at, agent in enumerate(self._config.agents):
            self._start(at, partial(self._poll_agent, at, agent))
        if self._config.meter is not None:
            self._start("meter", self._poll_meter)
        await self._wait([*range(len(self._config.agents)), "meter"], timeout_s=self._config.answer_s)
        return self._metered

    async def send(self, *, brake: Iterable[int], release: Iterable[int], command: Mapping[int, NodeClocks]) -> None:
        """Send new and pending commands, brake commands first."""
        if not self._acting:
            return
        for at in brake:
            self._queue(at, Path.BRAKE, "POST", BRAKE_PATH, BrakeCommand(**self._beat.model_dump(), on=True))
        for at in release:
            self._queue(at, Path.BRAKE, "POST", BRAKE_PATH, BrakeCommand(**self._beat.model_dump(), on=False))
        for at, clocks in command.items():
            body = ClocksCommand(**self._beat.model_dump(), token_clock=clocks.token, prompt_clock=clocks.prompt)
            self._queue(at, Path.CLOCKS, "PUT", CLOCKS_PATH, body)
        # One timeout for both: with that of polling, a reconcile ends within its period.
        deadline_s = time.monotonic() + self._config.answer_s
        for path in (Path.BRAKE, Path.CLOCKS):
            unanswered = self._of(path)
            for key, pending in unanswered:
                self._start((key, pending), partial(self._send_one, key, pending))
            await self._wait(unanswered, timeout_s=deadline_s - time.monotonic())

    def _start(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start one request of a kind at a time."""
        if key not in self._in_flight:
            task = self._in_flight[key] = asyncio.create_task(work())
            task.add_done_callback(lambda _done: self._in_flight.pop(key, None))

    async def _wait(self, kinds: Iterable[Hashable], *, timeout_s: float) -> None:
        """Wait until all of these have a response, or the time is up.  New requests continue in any case."""
        tasks = [self._in_flight[kind] for kind in kinds if kind in self._in_flight]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, timeout_s))

    def _of(self, path: Path) -> list[tuple[tuple[int, Path], _PendingCommand]]:
        return [(key, pending) for key, pending in self._pending.items() if pending.path is path]

    def _queue(self, at: int, path: Path, method: str, where: str, body: Beat) -> None:
        self._pending[at, path] = _PendingCommand(path, method, where, body)

    async def _poll_agent(self, at: int, agent: AgentEntry) -> None:
        sent_s = self._steady_s()
        url = self._urls[at]
        if self._acting:
            response = await self._request(url, "POST", url.rstrip("/") + BEAT_PATH, self._beat)
        else:
            response = await self._request(url, "GET", url.rstrip("/") + TELEMETRY_PATH, None)
        if response is not None:
            self._note(at, agent, response, sent_s)

    async def _poll_meter(self) -> None:
        meter = self._config.meter
        if meter is None:
            return
        sent_s = self._steady_s()
        response = await self._request(meter, "GET", meter, None)
        if response is None:
            return
        try:
            report_ = MeterReading.model_validate_json(response.content)
        except ValidationError as error:
            log.warning("meter_unreadable", reason=reason_of(error))
            return
        self._metered = Reading(sent_s - report_.age_s, report_.power_w)

    async def _send_one(self, key: tuple[int, Path], pending: _PendingCommand) -> None:
        sent_s = self._steady_s()
        url = self._urls[key[0]]
        response = await self._request(url, pending.method, url.rstrip("/") + pending.where, pending.body)
        result = "ok" if response is not None else "failed"
        self._metrics.actuated(pending.path, result, duration_s=self._steady_s() - sent_s)
        if response is not None and self._pending.get(key) is pending:
            del self._pending[key]

    async def _request(self, url_key: str, method: str, url: str, body: Beat | None) -> httpx.Response | None:
        content = None if body is None else body.model_dump_json()
        headers = self._headers | ({"Content-Type": "application/json"} if content else {})
        try:
            async with asyncio.timeout(PATIENCE * self._config.answer_s):
                response = await self._clients[url_key].request(
                    method, url, content=content, headers=headers, extensions=self._extensions
                )
                response.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            if url_key not in self._unreachable:  # once, not at every reconcile
                self._unreachable.add(url_key)
                log.warning("agent_unreachable", url=url, reason=str(error) or type(error).__name__)
            return None
        if url_key in self._unreachable:
            self._unreachable.discard(url_key)
            log.info("agent_recovered", url=url)
        return response

    def _note(self, at: int, agent: AgentEntry, response: httpx.Response, sent_s: float) -> None:
        try:
            report_ = NodeTelemetry.model_validate_json(response.content, extra="ignore")  # of a newer release
        except ValidationError as error:
            log.warning("agent_unreadable", server=agent.name, reason=reason_of(error))
            return
        if report_.server != agent.name:
            log.warning("agent_name_mismatch", server=agent.name, reported=report_.server)
            return
        # The oldest possible time: valid when the request left.
        self.reports[at] = AgentReport(sent_s - report_.age_s, report_)


def client_of(trusted: ssl.SSLContext) -> httpx.AsyncClient:
    """Build a client that keeps its connection and ignores the environment: a proxy must not delay a brake."""
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=4, keepalive_expiry=60.0)
    return httpx.AsyncClient(limits=limits, timeout=None, trust_env=False, verify=trusted)  # noqa: S113 - bounded above
