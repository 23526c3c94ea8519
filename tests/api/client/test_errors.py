"""Responses other than success raise the matching error with the service's message."""

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
    UnexpectedResponseError,
)
from api.client import operations as op
from api.schemas.applications import RayTrainRun
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


def test_the_message_names_the_request_and_the_invalid_field(send: Send) -> None:
    errors = [{"path": "offers[3].price_usd_per_h", "message": "must be greater than 0, got -1"}]
    answer = problem(422, title="Unprocessable Content", detail="the document breaks a rule", errors=errors)
    with pytest.raises(InvalidRequestError) as caught:
        send(CALL, Wire([answer]).transport)
    assert str(caught.value) == (
        "GET /v1/targets/chat: 422 Unprocessable Content: the document breaks a rule: "
        "offers[3].price_usd_per_h: must be greater than 0, got -1"
    )


def test_an_error_page_of_a_proxy_is_reported(send: Send) -> None:
    page = httpx.Response(502, headers={"Content-Type": "text/html"}, text="<h1>Bad gateway</h1>")
    with pytest.raises(ServerError, match=r"^GET /v1/targets/chat: 502 Bad Gateway$") as caught:
        send(CALL, Wire([page]).transport)
    assert caught.value.problem.type == "about:blank"


def test_an_unknown_status_is_reported(send: Send) -> None:
    with pytest.raises(ServerError, match="599 Unknown Status"):
        send(CALL, Wire([httpx.Response(599)]).transport)


def test_an_unexpected_success_status_is_an_error(send: Send) -> None:
    with pytest.raises(UnexpectedResponseError, match="unexpected status 202"):
        send(CALL, Wire([httpx.Response(202)]).transport)


def test_redirects_are_not_followed(send: Send) -> None:
    """The token would be sent to the new address."""
    wire = Wire([httpx.Response(307, headers={"Location": "http://elsewhere.test/"})])
    with pytest.raises(UnexpectedResponseError, match="unexpected status 307"):
        send(CALL, wire.transport)
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    ("body", "violation"),
    [(b"<html>", "invalid JSON"), (b"{}", "name: is required"), (b'{"name": "chat"}', "version: is required")],
)
def test_an_invalid_response_body_is_reported(send: Send, body: bytes, violation: str) -> None:
    with pytest.raises(UnexpectedResponseError, match=violation):
        send(CALL, Wire([httpx.Response(200, headers={"ETag": '"1-a"'}, content=body)]).transport)


def test_a_document_without_an_etag_is_an_error(send: Send) -> None:
    with pytest.raises(UnexpectedResponseError, match="no ETag"):
        send(op.get_freeze(), Wire([httpx.Response(200, json={"frozen": False})]).transport)


def test_unknown_fields_of_a_newer_service_are_ignored(send: Send) -> None:
    newer = httpx.Response(200, headers={"ETag": '"1-a"'}, json={"frozen": True, "reason": None, "until": "tomorrow"})
    assert send(op.get_freeze(), Wire([newer]).transport).document.frozen


def test_unknown_fields_inside_a_choice_of_forms_are_ignored(send: Send) -> None:
    application = {"kind": "ray_train", "run": "tune-7", "gpu": "H100", "queue": "night"}
    target = {"name": "tune", "version": 1, "spec": {"workload": "tune", "application": application, "owner": "ml"}}
    newer = httpx.Response(200, headers={"ETag": '"1-a"'}, json=target)
    read = send(op.get_target("tune"), Wire([newer]).transport).document.spec.application
    assert read == RayTrainRun(run="tune-7", gpu="H100")


@pytest.mark.parametrize(
    ("failure", "sent"),
    [
        (httpx.ConnectError, False),
        (httpx.ConnectTimeout, False),
        (httpx.PoolTimeout, False),
        (httpx.WriteTimeout, True),
        (httpx.ReadTimeout, True),
        (httpx.RemoteProtocolError, True),
    ],
)
def test_a_failed_connection_reports_whether_the_request_was_sent(
    send: Send, failure: type[httpx.TransportError], *, sent: bool
) -> None:
    with pytest.raises(ConnectionFailedError, match=r"^GET /v1/targets/chat: broken on purpose$") as caught:
        send(CALL, Wire([failure]).transport)
    assert caught.value.sent is sent
    assert caught.value.problem is None


def test_every_client_error_is_an_api_error() -> None:
    kinds = {ConnectionFailedError, UnexpectedResponseError, ProblemError}
    assert all(issubclass(kind, ApiError) for kind in kinds)
    assert issubclass(ApiError, FleetwrightError)
    assert issubclass(PreconditionFailedError, ConflictError)
