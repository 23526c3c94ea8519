"""Every operation of the application, with the scope that it declares; for tests of what each caller may do."""

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.server.auth import RequireScope
from api.server.projects import project_access

ID = "01990000-0000-7000-8000-000000000000"
# Segments that match the patterns of the path parameters.
SEGMENTS = {"id": ID, "diagnosis_id": ID, "token_id": "0" * 12, "version": "1"}


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str  # a template
    scope: RequireScope | None
    has_project: bool

    def url(self, **segments: str) -> str:
        parameters = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        values = {name: segments.get(name, SEGMENTS.get(name, "a")) for name in parameters}
        return self.path.format_map(values)


def operations(app: FastAPI) -> Iterator[Operation]:
    for route in iter_route_contexts(app.routes):
        if not isinstance(route.original_route, APIRoute):
            continue
        calls = list(_calls(route.dependant))
        scopes = [call for call in calls if isinstance(call, RequireScope)]
        for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
            yield Operation(
                id=str(route.operation_id or route.path),
                method=method,
                path=str(route.path),
                scope=scopes[0] if scopes else None,
                has_project=project_access in calls,
            )


def _calls(dependant: Dependant) -> Iterator[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from _calls(each)
