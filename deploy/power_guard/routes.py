"""The guard's HTTP face: its health, its metrics, its state, and the planner's budget."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import Field

from deploy.common.http_server import BodyLimit, bearer
from deploy.power_guard.loop import GuardLoop
from fleet.documents import Frozen, RuleError, dotted, item_problems
from power.guard import BudgetRequest

MAX_BYTES = 256 * 1024  # a thousand entries, several times


class BudgetInForce(Frozen):
    row: str
    limit_w: float
    expires_in_s: Annotated[float, Field(description="Negative: expired.")]


class GuardReport(Frozen):
    row: str
    mode: str
    state: str
    cause: str | None
    brakes: int
    limit_w: float
    budget: BudgetInForce | None
    unresponsive: tuple[str, ...]


def guard_app(loop: GuardLoop, *, registry: CollectorRegistry, budget_token: str | None) -> FastAPI:
    """Build the application of one running loop.  Without a token no budget is accepted."""
    app = FastAPI(title="Fleetwright guard", openapi_url=None)

    async def unreadable(_request: Request, error: Exception) -> JSONResponse:
        loop.metrics.budget_refused()
        items = error.errors() if isinstance(error, RequestValidationError) else []
        return _problem(list(_defects(items)))

    app.add_exception_handler(RequestValidationError, unreadable)
    app.add_exception_handler(RuleError, _refused)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BYTES)

    @app.get("/healthz")
    async def healthz() -> Response:
        alive = loop.is_alive()
        return JSONResponse({"status": "ok" if alive else "reconciles do not end in time"}, 200 if alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/state")
    async def state() -> GuardReport:
        return report_of(loop)

    if budget_token is not None:

        @app.put("/budget", dependencies=[Depends(bearer(budget_token))])
        async def budget(body: BudgetRequest) -> BudgetInForce:
            loop.set_budget(body)
            return in_force(loop)

    return app


def waiting_app(row: str) -> FastAPI:
    """Build the application of a guard that has not found its first agent."""
    app = FastAPI(title="Fleetwright guard", openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": f"no agent of {row} responds yet"}

    return app


def in_force(loop: GuardLoop) -> BudgetInForce:
    """Return the last accepted budget at this moment."""
    if loop.budget is None:
        raise ValueError("no budget was ever taken")
    now_s = loop.now_s()
    held = loop.budget.at(now_s)
    return BudgetInForce(row=loop.config.row, limit_w=held.limit_w, expires_in_s=held.expires_at_s - now_s)


def report_of(loop: GuardLoop) -> GuardReport:
    state = loop.state
    return GuardReport(
        row=loop.config.row,
        mode=loop.config.mode.value,
        state=state.mode.value,
        cause=state.cause.value if state.cause else None,
        brakes=state.brakes,
        limit_w=state.limit_w,
        budget=in_force(loop) if loop.budget else None,
        unresponsive=tuple(
            agent.name
            for agent, unresponsive in zip(loop.config.agents, state.commands.unresponsive, strict=True)
            if unresponsive
        ),
    )


def _problem(errors: list[dict[str, str]]) -> JSONResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "The budget was not taken; the one before stays in force.",
        "errors": errors,
    }
    return JSONResponse(body, 422, media_type="application/problem+json")


def _defects(items: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the violations of a body that is not a budget, with their paths."""
    if items and items[0]["type"] == "json_invalid":
        yield {"path": "", "message": f"is not JSON: {items[0]['ctx']['error']}"}
        return
    for path, message in item_problems([item | {"loc": item["loc"][1:]} for item in items]):
        yield {"path": dotted(path), "message": message}


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    violations = error.violations if isinstance(error, RuleError) else ()
    return _problem([{"path": dotted(path), "message": message} for path, message in violations])
