"""Projects: the owners of results, jobs, targets and diagnoses, with their quotas.

A token belongs to one project or to all.  The project `default` always exists and owns what names no other project.
"""

from typing import Annotated, Final

from pydantic import Field

from api.schemas.names import Name, Text
from fleet.documents import Frozen

DEFAULT_PROJECT: Final = "default"
PROJECT_HEADER: Final = "Fleetwright-Project"

Count = Annotated[int, Field(ge=0, le=10**12)]


class Quotas(Frozen):
    """What a project may use; null: no limit."""

    plans_per_day: Count | None = Field(default=None, description="Plans of the last 24 hours.")
    cpu_s_per_day: Annotated[float, Field(ge=0.0, le=1e12)] | None = Field(
        default=None, description="CPU seconds of the jobs of the last 24 hours."
    )
    queued_jobs: Count | None = Field(default=None, description="Jobs that wait at one time.")
    stored_bytes: Count | None = Field(
        default=None, description="Results, documents and diagnoses; counted once a minute."
    )


class ProjectSpec(Frozen):
    """An administrator's specification of a project."""

    description: Text | None = None
    quotas: Quotas = Quotas()


class Project(Frozen):
    """A stored project."""

    name: Name
    version: int = Field(ge=1)
    spec: ProjectSpec
