"""Reads the demand of one target in one window from all its sources, and compares them."""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from api.schemas.demand_sources import DemandSources, EngineMetricsDemand, PrometheusDemand, RequestLogDemand
from api.schemas.target_hosts import AllowedHosts
from deploy.common.errors import UnreachableError
from deploy.common.target_http import target_client
from deploy.demand.credentials import read_credentials
from deploy.demand.metrics_pages import PAGE_LABEL, MetricsPages
from deploy.demand.prometheus import MAX_RESPONSE_BYTES, read_series
from planner.demand.profiles import PROFILES
from planner.demand.replicas import Window
from planner.demand.request_log import read_log
from planner.demand.windows import DemandWindow, disagreement, read_window

MAX_LOG_BYTES = 64_000_000  # the newest of a log; about 300,000 requests


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandFolders:
    """Where an operator puts what demand sources name."""

    credentials: Path | None = None
    logs: Path | None = None


@dataclass(slots=True)
class DemandReader:
    allowed: AllowedHosts
    http: httpx.AsyncClient
    pages: MetricsPages
    folders: DemandFolders
    _failed: dict[str, str] = field(default_factory=dict)  # page -> why its last poll failed

    async def poll(self, sources: Iterable[DemandSources], *, at_s: float) -> None:
        """Read the metrics pages that this process must read itself."""
        wanted: dict[str, str] = {}
        for each in sources:
            for source in each.sources:
                if isinstance(source, EngineMetricsDemand):
                    wanted |= dict.fromkeys(map(str, _pages(source)), source.profile)
        self.pages.forget_all_but(wanted)
        self._failed = {}
        for profile in sorted(set(wanted.values())):
            pages = [page for page, name in wanted.items() if name == profile]
            self._failed |= await self.pages.poll(pages, profile=PROFILES[profile], at_s=at_s)

    def keeps_history(self, demand: DemandSources) -> bool:
        """Whether past windows can be read at little cost."""
        return all(isinstance(source, PrometheusDemand) for source in demand.sources)

    async def read(
        self, demand: DemandSources, *, window: Window, expected_replicas: Mapping[str, int]
    ) -> DemandWindow:
        """The first source's demand, with the problems of all sources."""
        found = await asyncio.gather(
            *(self._read(source, window=window, expected=expected_replicas) for source in demand.sources)
        )
        problems = [
            problem if len(found) == 1 else f"source {position}: {problem}"
            for position, each in enumerate(found, start=1)
            for problem in each.problems
        ]
        if not problems and (difference := disagreement(found, tolerance=demand.tolerance)) is not None:
            problems.append(f"contradictory: {difference}")
        return replace(found[0], problems=tuple(problems))

    async def _read(
        self,
        source: PrometheusDemand | EngineMetricsDemand | RequestLogDemand,
        *,
        window: Window,
        expected: Mapping[str, int],
    ) -> DemandWindow:
        try:
            if isinstance(source, PrometheusDemand):
                return await self._of_prometheus(source, window, expected)
            if isinstance(source, EngineMetricsDemand):
                return self._of_pages(source, window, expected)
            return await asyncio.to_thread(self._of_log, source, window)
        except UnreachableError as error:
            return DemandWindow(window=window, problems=(f"unreachable: {error}",))

    async def _of_prometheus(
        self, source: PrometheusDemand, window: Window, expected: Mapping[str, int]
    ) -> DemandWindow:
        credentials, profile = read_credentials(self.folders.credentials, source.credentials), PROFILES[source.profile]
        tls = credentials.tls()
        async with self._client(tls) as http:
            series = await read_series(http, source, profile=profile, window=window, headers=credentials.http_headers())
        return await asyncio.to_thread(
            read_window,
            series,
            window=window,
            profile=profile,
            parts=source.parts,
            max_age_s=source.max_age_s,
            expected_replicas=expected,
        )

    @asynccontextmanager
    async def _client(self, tls: ssl.SSLContext | None) -> AsyncIterator[httpx.AsyncClient]:
        if tls is None:
            yield self.http
            return
        async with target_client(self.allowed, max_answer_bytes=MAX_RESPONSE_BYTES, tls=tls) as http:
            yield http

    def _of_pages(self, source: EngineMetricsDemand, window: Window, expected: Mapping[str, int]) -> DemandWindow:
        found = read_window(
            self.pages.series(map(str, _pages(source))),
            window=window,
            profile=PROFILES[source.profile],
            parts={
                part: {PAGE_LABEL: "|".join(re.escape(str(page)) for page in pages)}
                for part, pages in source.parts.items()
            },
            max_age_s=source.max_age_s,
            expected_replicas=expected or {part: len(pages) for part, pages in source.parts.items()},
        )
        if expected and not found.problems:
            return found  # as many replicas export samples as run; other pages may be of stopped ones
        failed = [
            f"unreachable: {page} {self._failed[page]}" for page in map(str, _pages(source)) if page in self._failed
        ]
        return replace(found, problems=(*failed, *found.problems))

    def _of_log(self, source: RequestLogDemand, window: Window) -> DemandWindow:
        if self.folders.logs is None:
            raise UnreachableError(f"file: {source.file!r}: this controller has no folder of logs")
        try:
            with (self.folders.logs / source.file).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
                if file.tell():
                    file.readline()  # the rest of a line
                return read_log(
                    (line.decode("utf-8", errors="replace") for line in file),
                    log_format=source.format.value,
                    selector=source.selector,
                    window=window,
                    max_age_s=source.max_age_s,
                )
        except OSError as error:
            raise UnreachableError(f"file: {source.file!r}: {type(error).__name__}") from error


@asynccontextmanager
async def demand_reader(*, allowed: AllowedHosts, folders: DemandFolders | None = None) -> AsyncIterator[DemandReader]:
    async with target_client(allowed, max_answer_bytes=MAX_RESPONSE_BYTES) as http:
        yield DemandReader(allowed, http, MetricsPages(http), folders or DemandFolders())


def _pages(source: EngineMetricsDemand) -> Iterator[object]:
    for pages in source.parts.values():
        yield from pages
