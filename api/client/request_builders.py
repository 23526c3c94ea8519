"""Builds requests by kind: a read, a page of a list, an idempotent creation, a conditional write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic
from uuid import uuid4

from pydantic import BaseModel

from api.client.calls import Call, as_nothing, as_type, json_body, path_of
from api.schemas.pages import Page
from api.schemas.results import RecordT, RequestT, ResultType, SummaryT

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
    return Call(
        method="POST",
        path=path,
        headers={**JSON, "Idempotency-Key": idempotency_key if idempotency_key is not None else uuid4().hex},
        body=json_body(body),
        expects=frozenset({HTTPStatus.CREATED}),
        read=as_type(result),
        repeatable=True,
        work_s=work_s,
    )


def putting(
    path: str, body: BaseModel, condition: Mapping[str, str], read: Any, *, answer: HTTPStatus = HTTPStatus.OK
) -> Call[Any]:
    return Call(
        method="PUT",
        path=path,
        headers={**JSON, **condition},
        body=json_body(body),
        expects=frozenset({answer}),
        read=read,
    )


def deleting(path: str, condition: Mapping[str, str]) -> Call[None]:
    return Call(
        method="DELETE", path=path, headers=condition, expects=frozenset({HTTPStatus.NO_CONTENT}), read=as_nothing
    )


def if_matching(etag: str) -> Mapping[str, str]:
    """Require the version that a write replaces."""
    return {"If-Match": etag}


@dataclass(frozen=True, slots=True)
class ResultOperations(Generic[RequestT, RecordT, SummaryT]):
    """Builds the operations on one kind of stored result.  `work_s`: how long the service may work on a request."""

    stored: ResultType[RequestT, RecordT, SummaryT]
    work_s: Callable[[RequestT], float]

    def create(self, request: RequestT, *, idempotency_key: str | None = None) -> Call[RecordT]:
        """Solve the request and store the result.  An infeasible request has a result too."""
        path, work_s = f"/v1/{self.stored.path}", self.work_s(request)
        return creating(path, request, idempotency_key, self.stored.record, work_s=work_s)

    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[SummaryT]]:
        """Read results, newest first."""
        return listing(f"/v1/{self.stored.path}", self.stored.summary, limit=limit, cursor=cursor)

    def get(self, result_id: str) -> Call[RecordT]:
        """Read one result with its request."""
        return reading(path_of(f"/v1/{self.stored.path}/{{id}}", id=result_id), as_type(self.stored.record))
