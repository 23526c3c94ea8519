"""Describes one call to the API, and builds calls by kind: a read, a page of a list, a creation, a conditional write.

Sans I/O: a `Call` defines what to send and how to read the response.  The blocking and the asynchronous client send the
same calls, so neither contains anything about the API.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from api.client.errors import ConnectionFailedError, UnexpectedResponseError, error_from
from api.schemas.jobs import Job
from api.schemas.labels import label_text
from api.schemas.leases import LEASE_HEADER, LeaseTerm
from api.schemas.pages import Page
from api.schemas.results import RecordT, RequestT, ResultType, SummaryT
from api.tracing import Span, SpanKind, span
from fleet.documents import IGNORE_UNKNOWN, dotted, item_problems
from fleet.errors import DocumentError, Problem
from fleet.solvers import SolveStatus

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")

NO_SEGMENTS = frozenset({"", ".", ".."})
# With these errors, the service received no byte of the request.
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[ResultT]):
    """Holds a document and the ETag to send as `if_match` when replacing it."""

    etag: str
    document: ResultT


@dataclass(frozen=True, slots=True)
class Call(Generic[ResultT]):
    """Defines what to send, which statuses are a success, and how to read the response."""

    method: str
    path: str
    read: Callable[[httpx.Response], ResultT]
    expects: frozenset[int] = frozenset({200})
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    # The client may send the call again although the service may have executed it: a read, or a write with an
    # idempotency key.  A write under If-Match is not repeatable: the first try would make the second one fail.
    repeatable: bool = False
    # False for probes, which report the state of this moment.
    retried: bool = True
    # How long the service may work on the call, in addition to the usual read timeout.
    work_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def result_of(self, response: httpx.Response) -> ResultT:
        """Return the result, or raise the error of the response."""
        if response.status_code not in self.expects:
            raise error_from(response, call=str(self))
        try:
            return self.read(response)
        except ValidationError as error:
            # Without the input and the exception chain: the response may contain a new token.
            found = item_problems(error.errors(include_input=False, include_url=False))
            defects = "; ".join(f"{dotted(path)}: {message}" if path else message for path, message in found[:10])
            raise UnexpectedResponseError(f"{self}: the response does not match the contract: {defects}") from None


@contextmanager
def connection_errors(call: Call[Any]) -> Iterator[None]:
    """Convert the errors of the transport to ConnectionFailedError."""
    try:
        yield
    except httpx.RequestError as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailedError(f"{call}: {reason}", sent=not isinstance(error, _NOTHING_SENT)) from error


def call_span(call: Call[Any]) -> AbstractContextManager[Span]:
    """Record one attempt of a call as a span."""
    return span(call.method, kind=SpanKind.CLIENT, http__request__method=call.method, url__path=call.path)


def next_page(call: Call[Page[ItemT]], page: Page[ItemT]) -> Call[Page[ItemT]] | None:
    """Return the call for the page after this one; None after the last."""
    if page.next_cursor is None:
        return None
    return replace(call, query={**call.query, "cursor": page.next_cursor})


def path_of(template: str, **parts: object) -> str:
    """Fill a path template; every part stays one segment, whatever it contains.

    A part that cannot be a segment is an error: the request would reach another path.
    """
    for field_name, part in parts.items():
        if str(part) in NO_SEGMENTS:
            wrong = Problem("", f"cannot stand in a path, expected a name other than '.' and '..', got {part!r}")
            raise DocumentError(name=field_name, problems=[wrong])
    return template.format_map({name: quote(str(part), safe="") for name, part in parts.items()})


def json_body(model: BaseModel) -> bytes:
    return model.model_dump_json().encode()


def as_type(kind: Any) -> Callable[[httpx.Response], Any]:
    """Read the body as `kind`.  Fields that this version does not know are ignored: the service may be newer."""

    def read(response: httpx.Response) -> Any:
        return _adapter(kind).validate_json(response.content, extra="ignore", context=IGNORE_UNKNOWN)

    return read


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Cached: building a validator takes longer than most calls."""
    return TypeAdapter(kind)


def as_versioned(kind: Any) -> Callable[[httpx.Response], Versioned[Any]]:
    """Read the body as `kind`, with its ETag."""
    read_document = as_type(kind)

    def read(response: httpx.Response) -> Versioned[Any]:
        etag = response.headers.get("etag")
        if etag is None:
            raise UnexpectedResponseError("the response has no ETag")
        return Versioned(etag=etag, document=read_document(response))

    return read


def as_nothing(_: httpx.Response) -> None:
    """Ignore the body."""


def as_bytes(response: httpx.Response) -> bytes:
    return response.content


def as_text(response: httpx.Response) -> str:
    return response.text


JSON: Mapping[str, str] = {"Content-Type": "application/json"}
MISSING: Mapping[str, str] = {"If-None-Match": "*"}


def reading(path: str, read: Any) -> Call[Any]:
    return Call(method="GET", path=path, read=read, repeatable=True)


def listing(path: str, item: type[BaseModel], *, limit: int | None, cursor: str | None) -> Call[Any]:
    query = {} if limit is None else {"limit": str(limit)}
    if cursor is not None:
        query["cursor"] = cursor
    return Call(method="GET", path=path, query=query, read=as_type(Page[item]), repeatable=True)  # type: ignore[valid-type] # built at run time


def creating(
    path: str, body: BaseModel, idempotency_key: str | None, result: type[BaseModel], *, work_s: float = 0.0
) -> Call[Any]:
    """Create an object, once per key."""
    call = posting(path, body, result, success=HTTPStatus.CREATED, work_s=work_s)
    return replace(call, headers={**call.headers, **once(idempotency_key)})


def posting(
    path: str,
    body: BaseModel | None,
    result: type[BaseModel],
    *,
    success: HTTPStatus = HTTPStatus.OK,
    work_s: float = 0.0,
) -> Call[Any]:
    """Call an operation that has the same effect when it is called again."""
    return Call(
        method="POST",
        path=path,
        headers=JSON if body is not None else {},
        body=json_body(body) if body is not None else None,
        expects=frozenset({success}),
        read=as_type(result),
        repeatable=True,
        work_s=work_s,
    )


def given(**parameters: str | None) -> dict[str, str]:
    """Return the query of those parameters that have a value."""
    return {name: value for name, value in parameters.items() if value is not None}


def submitting(call: Call[Any]) -> Call[Job]:
    """Call an operation without waiting for its end: returns the job."""
    headers = {**call.headers, "Prefer": "respond-async"}
    return replace(call, headers=headers, expects=frozenset({HTTPStatus.ACCEPTED}), read=as_type(Job), work_s=0.0)


def reading_output(job: Job, call: Call[ResultT]) -> Call[ResultT]:
    """Read the result of a submitted call that only its job keeps."""
    read: Call[ResultT] = reading(path_of("/v1/jobs/{id}/output", id=job.id), call.read)
    return read


def once(idempotency_key: str | None) -> Mapping[str, str]:
    """Return the header with the key, or with a new one."""
    return {"Idempotency-Key": idempotency_key if idempotency_key is not None else uuid4().hex}


def putting(
    path: str, body: BaseModel, condition: Mapping[str, str], read: Any, *, success: HTTPStatus = HTTPStatus.OK
) -> Call[Any]:
    return Call(
        method="PUT",
        path=path,
        headers={**JSON, **condition},
        body=json_body(body),
        expects=frozenset({success}),
        read=read,
    )


def deleting(path: str, condition: Mapping[str, str]) -> Call[None]:
    return Call(
        method="DELETE", path=path, headers=condition, expects=frozenset({HTTPStatus.NO_CONTENT}), read=as_nothing
    )


def if_matching(etag: str) -> Mapping[str, str]:
    """Require the version that a write replaces."""
    return {"If-Match": etag}


def under_lease(held: LeaseTerm | None) -> Mapping[str, str]:
    """Name the term under which the caller acts."""
    return {} if held is None else {LEASE_HEADER: str(held)}


@dataclass(frozen=True, slots=True)
class ResultOperations(Generic[RequestT, RecordT, SummaryT]):
    """Builds the operations on one kind of stored result.  `work_s`: how long the service may work on a request."""

    stored: ResultType[RequestT, RecordT, SummaryT]
    work_s: Callable[[RequestT], float]

    def create(
        self,
        request: RequestT,
        *,
        idempotency_key: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Call[RecordT]:
        """Solve the request and store the result under a name and labels.  An infeasible request has a result too."""
        path, work_s = f"/v1/{self.stored.path}", self.work_s(request)
        call = creating(path, request, idempotency_key, self.stored.record, work_s=work_s)
        return replace(call, query=given(name=name, labels=label_text(labels) if labels else None))

    def submit(
        self,
        request: RequestT,
        *,
        idempotency_key: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Call[Job]:
        """Request the result without waiting: returns the job, whose id the result will have."""
        call = creating(f"/v1/{self.stored.path}", request, idempotency_key, Job)
        return submitting(replace(call, query=given(name=name, labels=label_text(labels) if labels else None)))

    def page(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        name: str | None = None,
        labels: str | None = None,
        created_by: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Call[Page[SummaryT]]:
        """Read results, newest first.  `name` is the beginning of a name, `labels` a selector: `k=v,k2`."""
        call = listing(f"/v1/{self.stored.path}", self.stored.summary, limit=limit, cursor=cursor)
        chosen = given(
            name=name,
            labels=labels,
            created_by=created_by,
            created_after=created_after.isoformat() if created_after is not None else None,
            created_before=created_before.isoformat() if created_before is not None else None,
        )
        return replace(call, query={**call.query, **chosen})

    def page_by_status(
        self,
        *,
        status: SolveStatus | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        name: str | None = None,
        labels: str | None = None,
        created_by: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Call[Page[SummaryT]]:
        """Read results as `page` does, also by the status of the solver, of a kind that has one."""
        call = self.page(
            limit=limit,
            cursor=cursor,
            name=name,
            labels=labels,
            created_by=created_by,
            created_after=created_after,
            created_before=created_before,
        )
        return replace(call, query={**call.query, **given(status=status.value if status is not None else None)})

    def get(self, result_id: str) -> Call[RecordT]:
        """Read one result with its request."""
        return reading(path_of(f"/v1/{self.stored.path}/{{id}}", id=result_id), as_type(self.stored.record))
