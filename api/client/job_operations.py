"""Describes the operations on jobs as `Call`s."""

from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import httpx

from api.client.calls import Call, as_text, as_type, listing, path_of, reading
from api.schemas.jobs import Job, JobState
from api.schemas.pages import Page

FOLLOWING_S = 86_400.0  # the longest job


def list_jobs(
    *,
    state: JobState | None = None,
    kind: str | None = None,
    created_by: str | None = None,
    parent: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Job]]:
    """Read jobs, newest first; with `parent` those that it has created, such as the points of a sweep."""
    call: Call[Page[Job]] = listing("/v1/jobs", Job, limit=limit, cursor=cursor)
    wanted = {
        "state": state.value if state is not None else None,
        "kind": kind,
        "created_by": created_by,
        "parent": parent,
    }
    return replace(call, query={**call.query, **{name: value for name, value in wanted.items() if value is not None}})


def get_job(job_id: str) -> Call[Job]:
    """Read one job: its state, its place in the queue, its progress, and its result or problem."""
    return reading(_path(job_id), as_type(Job))


def cancel_job(job_id: str) -> Call[Job]:
    """Cancel a job; ConflictError when it has ended already."""
    return Call(
        method="DELETE",
        path=_path(job_id),
        expects=frozenset({HTTPStatus.ACCEPTED}),
        read=as_type(Job),
        repeatable=True,
    )


def get_job_output(job_id: str) -> Call[str]:
    """Read what a job has made that is stored nowhere else; raises the problem of a job that failed."""
    return reading(f"{_path(job_id)}/output", as_text)


def follow_job(job_id: str) -> Call[tuple[Job, ...]]:
    """Wait for the end of a job, and return it at every change."""
    call: Call[Any] = reading(f"{_path(job_id)}/events", lambda response: tuple(_events(response)))
    return replace(call, work_s=FOLLOWING_S)


def _path(job_id: str) -> str:
    return path_of("/v1/jobs/{id}", id=job_id)


def _events(response: httpx.Response) -> Iterator[Job]:
    for line in response.text.splitlines():
        if line.startswith("data: "):
            yield Job.model_validate_json(line.removeprefix("data: "), extra="ignore")
