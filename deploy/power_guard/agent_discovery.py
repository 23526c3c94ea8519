"""Finds the agents of a row by the addresses of a headless Service, and their names by the telemetry of each.

A server is known by the name that its agent reports, whatever its address.  A server whose agent has left the Service
stays in the row for `forget_s`: it may still draw power, so it counts with its worst case.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable

import httpx
import structlog
from pydantic import ValidationError

from deploy.common.credentials import AgentTls, trust_of
from deploy.node_agent.schemas import TELEMETRY_PATH, NodeTelemetry
from deploy.power_guard.agent_client import Agents, client_of
from deploy.power_guard.config import AgentDiscovery, AgentEntry

log = structlog.get_logger()

CONCURRENT = 64
TIMEOUT_S = 2.0

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve_by_dns(host: str, port: int) -> list[str]:
    """Return the addresses of a host; none where the name does not exist."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return sorted({str(entry[4][0]) for entry in found})


class AgentFinder:
    """The agents found so far, by the name of their server."""

    def __init__(
        self,
        settings: AgentDiscovery,
        *,
        tls: AgentTls | None,
        token: str | None,
        resolve: Resolve = resolve_by_dns,
        steady_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._client = client_of(trust_of(tls))
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._resolve, self._steady_s, self._sleep = resolve, steady_s, sleep
        self._urls: dict[str, str] = {}
        self._found_s: dict[str, float] = {}

    @property
    def server_name(self) -> str | None:
        """Return the name in the agents' certificates."""
        return (self._settings.server_name or self._settings.service) if self._settings.scheme == "https" else None

    def entries(self) -> tuple[AgentEntry, ...]:
        settings = self._settings
        return tuple(
            AgentEntry(name=name, url=url, duty=settings.duty, model=settings.model)
            for name, url in sorted(self._urls.items())
        )

    async def first(self) -> None:
        """Wait until at least one agent responds."""
        while not self._urls:
            await self.refresh()
            if not self._urls:
                await self._sleep(min(2.0, self._settings.every_s))

    async def changed(self, agents: Agents) -> None:
        """Give the loop's agents their new addresses, until a server joins or leaves the row."""
        before = set(self._urls)
        while set(self._urls) == before:
            await self._sleep(self._settings.every_s)
            await self.refresh()
            await agents.move(self._urls)

    async def refresh(self) -> None:
        addresses = await self._resolve(self._settings.service, self._settings.port)
        now_s = self._steady_s()
        for name, url in await self._names(addresses):
            self._urls[name], self._found_s[name] = url, now_s
        gone = [name for name, at_s in self._found_s.items() if now_s - at_s > self._settings.forget_s]
        for name in gone:
            log.warning("server_left", server=name, url=self._urls.pop(name), service=self._settings.service)
            del self._found_s[name]

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _names(self, addresses: Iterable[str]) -> list[tuple[str, str]]:
        limit = asyncio.Semaphore(CONCURRENT)

        async def named(address: str) -> tuple[str, str] | None:
            host = f"[{address}]" if ":" in address else address
            url = f"{self._settings.scheme}://{host}:{self._settings.port}"
            async with limit:
                name = await self._name(url)
            return (name, url) if name else None

        found = await asyncio.gather(*(named(address) for address in addresses))
        return [each for each in found if each]

    async def _name(self, url: str) -> str | None:
        extensions = {"sni_hostname": self.server_name} if self.server_name else {}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._client.get(url + TELEMETRY_PATH, headers=self._headers, extensions=extensions)
            response.raise_for_status()
            return NodeTelemetry.model_validate_json(response.content, extra="ignore").server
        except (httpx.HTTPError, TimeoutError, ValidationError) as error:
            log.warning("agent_not_identified", url=url, reason=str(error) or type(error).__name__)
            return None
