"""The project of a request: which things it sees, to which project new things belong, and what that project may use.

A token of one project sees and changes only the things of that project.  A token of the whole fleet sees all of them;
with the header `Fleetwright-Project`, or the query parameter `project`, it sees those of one project.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, Header, Query, Request

from api.jobs.sweeps import SWEEP_POINT
from api.schemas.names import NAME_PATTERN
from api.schemas.plans import PLANS
from api.schemas.projects import DEFAULT_PROJECT, PROJECT_HEADER, ProjectSpec, Quotas
from api.schemas.sweeps import SWEEPS
from api.server.auth import Principal, chosen_project
from api.server.problems import ProblemError, invalid
from api.store import Transaction
from fleet.documents import read_stored

KIND: Final = "projects"  # of the documents in the store
DAY: Final = timedelta(days=1)
BYTES_CACHED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ProjectAccess:
    """Holds the project of a request."""

    of_new: str = DEFAULT_PROJECT
    visible: str | None = None  # None: every project

    def includes(self, project: str) -> bool:
        return self.visible in (None, project)


WHOLE_FLEET: Final = ProjectAccess()


async def project_access(
    request: Request,
    header: Annotated[
        str | None,
        Header(alias=PROJECT_HEADER, pattern=NAME_PATTERN, description="The project; none: that of the token, or all."),
    ] = None,
    project: Annotated[str | None, Query(pattern=NAME_PATTERN, description="As the header.")] = None,
) -> ProjectAccess:
    principal: Principal = request.state.principal
    if header is not None and project is not None and header != project:
        raise invalid("query.project", f"differs from the header {PROJECT_HEADER}: {header!r}, got {project!r}")
    return access_of(principal, header or project)


def access_of(principal: Principal, chosen: str | None) -> ProjectAccess:
    """Return the access of a principal that chose a project, or none."""
    if principal.project is None:
        return ProjectAccess(of_new=chosen or DEFAULT_PROJECT, visible=chosen)
    if chosen not in (None, principal.project):
        raise ProblemError(
            status=HTTPStatus.FORBIDDEN,
            kind="forbidden",
            detail=f"this token belongs to project {principal.project!r}; got {chosen!r}",
        )
    return ProjectAccess(of_new=principal.project, visible=principal.project)


def project_for_new(request: Request) -> str:
    """Return the project of what the request creates.  For routes that read their parameters themselves."""
    chosen, principal = chosen_project(request), request.state.principal
    if chosen is not None and not re.fullmatch(NAME_PATTERN, chosen):
        raise invalid(f"header.{PROJECT_HEADER}", f"expected a name that matches {NAME_PATTERN}")
    return access_of(principal, chosen).of_new


PROJECT: Final = Depends(project_access)
ProjectOf = Annotated[ProjectAccess, Depends(project_access)]


async def quotas_of(tx: Transaction, project: str) -> Quotas:
    """Return the quotas of a project; 422 where it does not exist."""
    found = await tx.documents.head(kind=KIND, name=project)
    if found is None or found.body is None:
        if project != DEFAULT_PROJECT:
            raise invalid("project", f"there is no project {project!r}; create it at /v1/projects first")
        return Quotas()
    return read_stored(ProjectSpec, found.body).quotas


async def refuse_over_quota(
    tx: Transaction, project: str, *, now: datetime, job_kind: str | None = None, new_bytes: int = 0
) -> None:
    """Raise 429 where a new job of this kind, or this many new bytes, would exceed a quota of the project.

    Call this in the transaction that stores the job or the bytes.
    """
    quotas, since = await quotas_of(tx, project), now - DAY
    checks: list[tuple[str, float | None, Callable[[], Awaitable[float]]]] = []
    if job_kind is not None:
        checks.append(("queued_jobs", quotas.queued_jobs, lambda: tx.usage.queued_jobs(project)))
        checks.append(("cpu_s_per_day", quotas.cpu_s_per_day, lambda: tx.usage.cpu_s(project, since=since)))
    if job_kind in (PLAN_JOBS, SWEEP_JOBS):
        plans = (PLAN_JOBS, SWEEP_POINT)  # each point of a sweep is a plan
        checks.append(("plans_per_day", quotas.plans_per_day, lambda: tx.usage.jobs(project, plans, since=since)))
    for name, limit, used in checks:
        if limit is not None and (found := await used()) >= limit:
            raise _over(project, name, limit, found)
    if quotas.stored_bytes is not None:
        stored = await tx.usage.recent_bytes(project, max_age_s=BYTES_CACHED_S)
        if stored + new_bytes > quotas.stored_bytes:
            raise _over(project, "stored_bytes", quotas.stored_bytes, stored)
        tx.usage.add_bytes(project, new_bytes)


PLAN_JOBS: Final = PLANS.name
SWEEP_JOBS: Final = SWEEPS.name


def _over(project: str, quota: str, limit: float, used: float) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.TOO_MANY_REQUESTS,
        kind="over-quota",
        detail=f"project {project!r} has used its quota {quota}: {used:,.10g} of {limit:,.10g}",
        headers={"Retry-After": "60"},
    )
