"""Operations and their dependencies run on the event loop: a thread for each would cost more than most reads."""

import inspect
from collections.abc import Iterator
from pathlib import Path

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.server import Settings, create_app
from api.store import Store


def calls_of(dependant: Dependant) -> Iterator[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from calls_of(each)


def is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def test_no_operation_or_dependency_runs_in_a_thread(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    app = create_app(settings=Settings(database_url=url), store=Store(url), schema_head="0001")
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    calls = [call for route in routes for call in (route.endpoint, *calls_of(route.dependant))]
    assert len(calls) > len(routes) > 100
    assert [call for call in calls if not is_async(call)] == []
