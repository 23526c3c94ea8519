"""Answers that are no success become the error that names them, with the service's own words."""

import httpx
import pytest

from api.client import (
    ApiError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
    ProblemError,
    RateLimitedError,
    ServerError,
    UnauthorizedError,
    UnexpectedAnswerError,
)
from api.client import operations as op
from fleet.errors import FleetwrightError
from tests.api.client.conftest import Send
from tests.api.client.wire import Wire, problem

CALL = op.get_target("chat")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, InvalidRequestError),
        (409, ConflictError),
        (412, PreconditionFailedError),
        (413, InvalidRequestError),
        (415, InvalidRequestError),
        (422, InvalidRequestError),
        (428, PreconditionFailedError),
        (429, RateLimitedError),
        (500, ServerError),
        (502, ServerError),
        (503, ServerError),
    ],
)
def test_each_status_has_its_error(send: Send, status: int, kind: type[ProblemError]) -> None:
    with pytest.raises(FleetwrightError) as caught:
        send(CALL, Wire([problem(status, detail="because", request_id="r-1")]).transport)
    assert type(caught.value) is kind
    assert caught.value.problem.status == status
    assert caught.value.problem.request_id == "r-1"


def test_the_message_says_what_was_asked_and_what_is_wrong(send: Send) -> None:
    errors = [{"path": "offers[3].price_usd_per_h", "message": "must be greater than 0, got -1"}]
    answer = problem(422, title="Unprocessable Content", detail="the document breaks a rule", errors=errors)
    with pytest.raises(InvalidRequestError) as caught:
        send(CALL, Wire([answer]).transport)
    assert str(caught.value) == (
        "GET /v1/targets/chat: 422 Unprocessable Content: the document breaks a rule: "
        "offers[3].price_usd_per_h: must be greater than 0, got -1"
    )


def test_a_proxy_in_between_is_understood_too(send: Send) -> None:
    page = httpx.Response(502, headers={"Content-Type": "text/html"}, text="<h1>Bad gateway</h1>")
    with pytest.raises(ServerError, match=r"^GET /v1/targets/chat: 502 Bad Gateway$") as caught:
        send(CALL, Wire([page]).transport)
    assert caught.value.problem.type == "about:blank"


def test_a_status_without_a_name_is_understood_too(send: Send) -> None:
    with pytest.raises(ServerError, match="599 Unknown Status"):
        send(CALL, Wire([httpx.Response(599)]).transport)


def test_a_new_success_status_is_not_taken_for_the_known_one(send: Send) -> None:
    with pytest.raises(UnexpectedAnswerError, match="unexpected status 202"):
        send(CALL, Wire([httpx.Response(202)]).transport)


def test_redirects_are_not_followed(send: Send) -> None:
    """The token would go with them."""
    wire = Wire([httpx.Response(307, headers={"Location": "http://elsewhere.test/"})])
    with pytest.raises(UnexpectedAnswerError, match="unexpected status 307"):
        send(CALL, wire.transport)
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    ("body", "defect"),
    [(b"<html>", "invalid JSON"), (b"{}", "name: is required"), (b'{"name": "chat"}', "version: is required")],
)
def test_another_body_than_agreed_is_named(send: Send, body: bytes, defect: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match=defect):
        send(CALL, Wire([httpx.Response(200, headers={"ETag": '"1-a"'}, content=body)]).transport)


def test_a_document_without_etag_is_not_accepted(send: Send) -> None:
    with pytest.raises(UnexpectedAnswerError, match="no ETag"):
        send(op.get_freeze(), Wire([httpx.Response(200, json={"frozen": False})]).transport)


def test_members_of_a_newer_service_are_passed_over(send: Send) -> None:
    newer = httpx.Response(200, headers={"ETag": '"1-a"'}, json={"frozen": True, "reason": None, "until": "tomorrow"})
    assert send(op.get_freeze(), Wire([newer]).transport).document.frozen


@pytest.mark.parametrize(
    ("trouble", "sent"),
    [
        (httpx.ConnectError, False),
        (httpx.ConnectTimeout, False),
        (httpx.PoolTimeout, False),
        (httpx.WriteTimeout, True),
        (httpx.ReadTimeout, True),
        (httpx.RemoteProtocolError, True),
    ],
)
def test_a_failed_connection_says_whether_anything_was_sent(
    send: Send, trouble: type[httpx.TransportError], *, sent: bool
) -> None:
    with pytest.raises(ConnectionFailedError, match=r"^GET /v1/targets/chat: broken on purpose$") as caught:
        send(CALL, Wire([trouble]).transport)
    assert caught.value.sent is sent
    assert caught.value.problem is None


def test_one_except_clause_catches_them_all() -> None:
    kinds = {ConnectionFailedError, UnexpectedAnswerError, ProblemError}
    assert all(issubclass(kind, ApiError) for kind in kinds)
    assert issubclass(ApiError, FleetwrightError)
    assert issubclass(PreconditionFailedError, ConflictError)
