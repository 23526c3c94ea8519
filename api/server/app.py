import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute

from api.jobs.process_metrics import ProcessMetrics
from api.server.access_audit import AccessAudit
from api.server.auth import Authenticator, StaticToken
from api.server.database_health import DatabaseHealth
from api.server.events import EventFeed
from api.server.garbage_collection import run_garbage_collection
from api.server.jobs import Jobs
from api.server.limits import RateLimiter
from api.server.metrics import ServiceMetrics
from api.server.middleware import ChunkedBodies, HeadAsGet, LoopbackOnly, RequestObserver
from api.server.oidc import OidcVerifier
from api.server.openapi import add_openapi
from api.server.problems import add_problem_handlers
from api.server.rate_sharing import RateSharing
from api.server.routes import (
    api_docs,
    audit,
    console,
    diagnoses,
    events,
    freeze,
    health,
    health_events,
    jobs,
    leases,
    nodes,
    plan_checks,
    planning_loops,
    power_trees,
    projects,
    quarantine,
    remediation,
    sessions,
    stocks,
    stored_plans,
    targets,
    tokens,
    wanted,
)
from api.server.routes.catalogues import catalogue_routes
from api.server.routes.computations import computation_routes
from api.server.routes.stored_results import result_routes
from api.server.service import Service
from api.server.settings import Settings
from api.server.shared_page import SharedPage
from api.server.token_cache import TokenCache
from api.server.token_review import TokenReviewer
from api.server.tokens import make_first_token, read_bootstrap_token
from api.store import Store

GZIP_MIN_BYTES = 1024
GZIP_LEVEL = 4  # a third of the time of 9, for 5 % more bytes


def utc_now() -> datetime:
    return datetime.now(UTC)


def create_app(
    *,
    settings: Settings,
    store: Store,
    schema_head: str,
    static_tokens: Sequence[StaticToken] = (),
    show_first_token: Callable[[str], None] | None = None,
    now: Callable[[], datetime] = utc_now,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Create the service over a store whose schema is, or soon will be, at `schema_head`.

    `show_first_token` receives the admin token of a fresh database once.  Without it the service creates none.
    """
    bootstrap_token = read_bootstrap_token(settings.bootstrap_token_file)
    metrics = ServiceMetrics()
    service = Service(
        store=store,
        settings=settings,
        metrics=metrics,
        jobs=Jobs(store=store, settings=settings, now=now),
        database_health=DatabaseHealth(store, now=now, monotonic_s=monotonic_s),
        now=now,
        monotonic_s=monotonic_s,
        schema_head=schema_head,
        token_cache=TokenCache(store=store, monotonic_s=monotonic_s),
        events=EventFeed(store=store, settings=settings),
        metrics_page=SharedPage(interval_s=settings.metrics_interval_s, monotonic_s=monotonic_s),
        published_objects=SharedPage(interval_s=settings.metrics_interval_s, monotonic_s=monotonic_s),
    )
    limiter = RateLimiter(per_s=settings.rate_limit_per_s, burst=settings.rate_limit_burst, monotonic_s=monotonic_s)
    access_audit = AccessAudit(store=store, level=settings.audit_level, now=now)
    reviewer = TokenReviewer(settings, monotonic_s=monotonic_s) if settings.kubernetes_tokens else None
    app = FastAPI(
        title="Fleetwright",
        version=version("fleetwright"),
        summary="Capacity planning, expert placement, power capping and fault remediation for GPU fleets.",
        lifespan=_lifespan(
            service=service,
            limiter=limiter,
            access_audit=access_audit,
            bootstrap_token=bootstrap_token,
            show_first_token=show_first_token,
            process_metrics=ProcessMetrics(metrics.registry, store),
            reviewer=reviewer,
        ),
        openapi_url=None,  # FastAPI's route renders the document for each request; see `routes.api_docs`
        docs_url=None,  # FastAPI's page loads scripts from another site; see `routes.api_docs`
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.stopping = asyncio.Event()  # set once the server no longer accepts connections
    app.state.authenticator = Authenticator(
        tokens=service.token_cache,
        settings=settings,
        limiter=limiter,
        now=now,
        static_tokens=static_tokens,
        oidc=OidcVerifier(settings, now=now, monotonic_s=monotonic_s) if settings.oidc_issuer is not None else None,
        reviewer=reviewer,
    )
    app.state.session_limiter = RateLimiter(per_s=0.5, burst=20, monotonic_s=monotonic_s)  # of one token
    app.router.routes.extend(_api_routes())
    add_problem_handlers(app)
    add_openapi(app)
    # The last added middleware is the outermost.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_MIN_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(HeadAsGet)
    app.add_middleware(ChunkedBodies)
    if settings.allows_anonymous:
        app.add_middleware(LoopbackOnly)
    app.add_middleware(
        RequestObserver, metrics=metrics, access_audit=access_audit, now=now, stopping=app.state.stopping
    )
    return app


@cache
def _api_routes() -> list[BaseRoute]:
    """Return the routes of every resource.  The applications of a process share them: building them takes a second."""
    routers = (
        # A request tries the routes in this order: what controllers and clients poll comes first.
        health.router,
        freeze.router,
        targets.router,
        wanted.router,
        leases.router,
        planning_loops.router,
        quarantine.router,
        power_trees.router,
        stocks.router,
        jobs.router,
        catalogue_routes(),
        result_routes(),
        computation_routes(),
        events.router,
        nodes.router,
        plan_checks.router,
        stored_plans.router,
        diagnoses.router,
        remediation.router,
        health_events.router,
        projects.router,
        tokens.router,
        sessions.router,
        audit.router,
        api_docs.router,
        console.router,
    )
    return [route for router in routers for route in router.routes]


def _lifespan(
    *,
    service: Service,
    limiter: RateLimiter,
    access_audit: AccessAudit,
    bootstrap_token: str | None,
    show_first_token: Callable[[str], None] | None,
    process_metrics: ProcessMetrics,
    reviewer: TokenReviewer | None,
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        ending = asyncio.Event()

        async def stopped_within(seconds: float) -> bool:
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), seconds)
            return ending.is_set()

        # Signalled rather than cancelled: a connection that is cancelled while it opens leaks in the database.
        async with asyncio.TaskGroup() as beside:
            if show_first_token is not None:
                beside.create_task(
                    make_first_token(
                        service, given=bootstrap_token, show=show_first_token, stopped_within=stopped_within
                    )
                )
            else:
                service.first_token_stored.set()
            beside.create_task(run_garbage_collection(service, stopped_within=stopped_within))
            beside.create_task(process_metrics.measure_loop(stopped_within=stopped_within))
            beside.create_task(access_audit.run(stopped_within=stopped_within))
            if service.store.is_shared:
                sharing = RateSharing(store=service.store, limiter=limiter, now=service.now)
                beside.create_task(sharing.run(stopped_within=stopped_within))
            yield
            ending.set()
        await service.jobs.close()
        await service.events.close()
        await service.metrics_page.close()
        await service.published_objects.close()
        await service.body_checker.close()
        if reviewer is not None:
            await reviewer.close()
        await service.store.close()

    return lifespan
