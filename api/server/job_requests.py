"""Turns a request into a job, and the end of the job into the response.

The caller waits for the job, or gets `202 Accepted` at once with `Prefer: respond-async` (RFC 7240), or after
`wait=SECONDS` beside it.
"""

import json
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from api.schemas.jobs import Job, JobState
from api.schemas.labels import ResultNaming
from api.server.auth import Principal
from api.server.bodies import is_json
from api.server.idempotency import REPLAYED, saved_response
from api.server.jobs import NewJob, fingerprint_of, positions, raise_failure, show_job
from api.server.openapi import Responses
from api.server.problems import invalid
from api.server.projects import project_for_new
from api.server.result_query import naming_of
from api.server.service import Service
from api.store import JobRecord

IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
WAIT: Final = re.compile(r"wait=(\d{1,6})")
ACCEPTED: Responses = {
    202: {
        "model": Job,
        "description": "The job, for `Prefer: respond-async`.",
        "headers": {"Location": {"schema": {"type": "string"}, "required": True}},
    }
}


async def _prefer(
    prefer: Annotated[
        str | None,
        Header(
            max_length=200,
            description="`respond-async`: respond with 202 and the job; with `wait=SECONDS`, only after so long.",
        ),
    ] = None,
) -> None:
    """Document the header."""


PREFER: Final = Depends(_prefer)
Respond = Callable[[JobRecord], Awaitable[Response]]


async def run_job(
    request: Request,
    service: Service,
    principal: Principal,
    *,
    kind: str,
    text: str,
    respond: Respond,
    subject: str | None = None,
    naming: ResultNaming | None = None,
    key: str | None = None,
) -> Response:
    """Accept a job, wait as long as the caller prefers, and respond with its result, its problem or the job."""
    fingerprint = fingerprint_of(request, await request.body())
    # A replica of release 0.2.0 stored the response with the key.
    saved = await saved_response(service, actor=principal.actor, key=key, fingerprint=fingerprint)
    if saved is not None:
        return saved
    job, replayed = await service.jobs.accept(
        NewJob(
            kind=kind,
            request=text,
            actor=principal.actor,
            project=project_for_new(request),
            subject=subject,
            naming=naming,
            key=key,
            fingerprint=fingerprint if key is not None else None,
        )
    )
    del text  # the job has it
    if (release := getattr(request.state, "release_body", None)) is not None:
        release()
    wait_s = _wait_s(request)
    if wait_s is None or wait_s > 0:
        job = await service.jobs.wait(job, timeout_s=wait_s, request=request)
    if not JobState(job.state).is_final:
        return await _accepted(service, job)
    raise_failure(job)
    response = await respond(job)
    if replayed:
        response.headers[REPLAYED] = "true"
    return response


async def run_raw_job(request: Request, service: Service, *, kind: str, respond: Respond) -> Response:
    """Accept a job whose body is too large to be read here: its own process reads it."""
    if not is_json(request.headers.get("content-type")):
        raise invalid("header.Content-Type", "must be application/json")
    key = request.headers.get("idempotency-key")
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise invalid("header.Idempotency-Key", "expected 1 to 200 visible ASCII characters")
    principal: Principal = request.state.principal
    return await run_job(
        request,
        service,
        principal,
        kind=kind,
        text=text_of(await request.body()),
        respond=respond,
        naming=naming_of(request),
        key=key,
    )


def text_of(body: bytes) -> str:
    """Decode a JSON body; NUL characters, which PostgreSQL cannot store, are no JSON."""
    try:
        text = body.decode(json.detect_encoding(body))
    except UnicodeDecodeError:
        raise invalid("body", "must be JSON in UTF-8") from None
    if "\0" in text:
        raise invalid("body", f"must be JSON; at character {text.index(chr(0)) + 1}: an unexpected NUL")
    return text


def _wait_s(request: Request) -> float | None:
    """Return how long the caller waits; None: to the end."""
    preferences = request.headers.get("prefer", "").lower()
    if "respond-async" not in preferences:
        return None
    found = WAIT.search(preferences)
    return float(found[1]) if found is not None else 0.0


async def _accepted(service: Service, job: JobRecord) -> Response:
    async with service.store.reading() as tx:
        (position,) = await positions(tx, [job])
    return Response(
        content=show_job(job, position=position).model_dump_json(),
        status_code=HTTPStatus.ACCEPTED,
        headers={"Location": f"/v1/jobs/{job.id}", "Preference-Applied": "respond-async"},
        media_type="application/json",
    )
