"""Provides the service as a fixture: the real application on a real database, called over ASGI."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from structlog.contextvars import merge_contextvars
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import add_log_level

from api.client import InProcessTransport
from api.schemas.tokens import TokenScope
from api.server import Principal, Settings, StaticToken, create_app
from api.store import Migrations, Store
from tests.testbed.jobs import worker_beside
from tests.testbed.waiting import PATIENCE_S

TOKENS = {scope: f"fw_{scope.value:0<12}_{'s' * 43}" for scope in TokenScope}


@dataclass(slots=True)
class SteppedClock:
    """Stands still until it is moved."""

    at: datetime = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    elapsed_s: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.elapsed_s += seconds


@dataclass(slots=True)
class RunningService:
    """Holds an application in this process, and its clients."""

    app: FastAPI
    clock: SteppedClock
    shown_tokens: list[str] = field(default_factory=list)

    def client(self, scope: TokenScope | None = TokenScope.ADMIN, **options: Any) -> httpx.AsyncClient:
        """Create a client with the token of a scope, or with none."""
        headers = {"Authorization": f"Bearer {TOKENS[scope]}"} if scope is not None else {}
        transport = InProcessTransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, **options)

    async def first_token_stored(self) -> None:
        """Wait for the first token, which is created concurrently, so that its audit entry precedes those of a test."""
        async with asyncio.timeout(PATIENCE_S):
            await self.app.state.service.first_token_stored.wait()


def pytest_configure() -> None:
    """Disable local variables in tracebacks of captured logs: structlog's default follows everything they reference."""
    structlog.configure(
        processors=[merge_contextvars, add_log_level, ConsoleRenderer(exception_formatter=plain_traceback)]
    )


StartService = Callable[..., AbstractAsyncContextManager[RunningService]]


@pytest.fixture
def start_service() -> StartService:
    """Start the application on a database, with any settings."""

    @asynccontextmanager
    async def start(database_url: str, *, with_worker: bool = True, **settings: Any) -> AsyncIterator[RunningService]:
        clock = SteppedClock()
        shown: list[str] = []
        app = create_app(
            # The clock of the tests stands still, so that a page of metrics would never become old.
            settings=Settings(database_url=database_url, **{"metrics_interval_s": 0} | settings),
            store=Store(database_url),
            schema_head=Migrations(database_url).head,
            static_tokens=[
                StaticToken(token=token, principal=Principal(actor=f"token:{scope.value}", scopes=frozenset({scope})))
                for scope, token in TOKENS.items()
            ],
            show_first_token=shown.append,
            now=clock.now,
            monotonic_s=clock.monotonic_s,
        )
        async with app.router.lifespan_context(app), worker_beside(app) if with_worker else nullcontext():
            yield RunningService(app=app, clock=clock, shown_tokens=shown)

    return start


@pytest.fixture
async def service(start_service: StartService, database_url: str) -> AsyncIterator[RunningService]:
    """Run the application on SQLite and then on PostgreSQL."""
    async with start_service(database_url) as running:
        await running.first_token_stored()
        yield running


@pytest.fixture
async def sqlite_service(start_service: StartService, sqlite_url: str) -> AsyncIterator[RunningService]:
    """Run the application on SQLite, for tests that do not depend on the database."""
    async with start_service(sqlite_url) as running:
        await running.first_token_stored()
        yield running
