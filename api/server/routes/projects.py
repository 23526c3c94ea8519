"""`/v1/projects`: the projects and their quotas.  A token of one project reads only its own."""

from collections.abc import Iterable
from functools import partial

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN
from api.schemas.projects import DEFAULT_PROJECT, Project, ProjectSpec
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.collections import AuditVerbs, Collection
from api.server.problems import conflict
from api.server.projects import KIND
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes
from api.server.service import Service
from api.store import Transaction
from fleet.documents import read_stored


async def _is_unused(service: Service, tx: Transaction, name: str, spec: ProjectSpec | None) -> None:
    """Refuse to delete a project that still has users; what it has stored stays readable for the whole fleet."""
    if spec is not None or name == DEFAULT_PROJECT:
        return
    await tx.audit.lock()
    used = list(_used(await tx.tokens.valid_of(name, now=service.now()), "token"))
    for kind, what in (("targets", "target"), ("planning-loops", "planning loop")):
        heads = await tx.documents.heads(kind=kind, after=None, limit=3, project=name)
        used += _used([head.name for head in heads], what)
    if used:
        found = ", ".join(used[:3])
        raise conflict(f"project {name!r} still has {found}; revoke its tokens, delete its targets and planning loops")


def _used(names: Iterable[str], what: str) -> list[str]:
    return [f"{what} {name!r}" for name in names]


PROJECTS = Collection(
    kind=KIND,
    path="projects",
    label="project",
    verbs=AuditVerbs("project"),
    spec=ProjectSpec,
    shown=Project,
    show=lambda found: Project(name=found.name, version=found.version, spec=found.spec),
    parse=partial(read_stored, ProjectSpec),
    check_references=_is_unused,
    owned=True,
    is_own_project=True,
)

router = APIRouter(tags=["projects"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        PROJECTS,
        key="name",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.ADMIN, fleet=True),
        text=CollectionText(
            singular="project",
            lists=OperationText("List projects", "Projects by name, with their quotas."),
            gets=OperationText("Read a project", "One project."),
            puts=OperationText(
                "Create or replace a project", "Create with `If-None-Match: *`, replace with `If-Match`."
            ),
            deletes=OperationText(
                "Delete a project",
                "Delete a project without valid tokens, targets and planning loops; its results stay.",
            ),
        ),
    ),
)
