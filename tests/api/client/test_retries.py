"""A call is retried only where a repetition is safe, by both clients alike."""

import time

import httpx
import pytest
import stamina

from api.client import ConnectionFailedError, ProblemError, RateLimitedError, Retries, ServerError
from api.client import access_operations as access
from api.client import operations as op
from api.client.calls import Call
from api.schemas.targets import Freeze, Phase, TargetStatus
from api.schemas.tokens import TokenCreated, TokenRequest, TokenScope
from tests.api.client.conftest import Send
from tests.api.client.wire import Answer, Wire, problem

FREEZE = httpx.Response(200, headers={"ETag": '"1-a"'}, json={"frozen": True, "reason": None})
NOW = "2026-11-20T12:00:00Z"
STATUS = TargetStatus.model_validate({"phase": Phase.OBSERVED, "observed_at": NOW})
TOKEN = {"id": "a", "name": "ci", "scopes": ["read"], "created_at": NOW, "created_by": "token:b"}
TOKEN_MADE = httpx.Response(201, json={"info": TOKEN, "secret": "fw_a_b"})

READ = op.get_freeze()
CONDITIONAL_WRITE = op.replace_freeze(Freeze(frozen=True), if_match='"0-a"')


def make_token() -> Call[TokenCreated]:
    return access.create_token(TokenRequest(name="ci", scopes=frozenset({TokenScope.READ})))


@pytest.mark.parametrize("call", [READ, CONDITIONAL_WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    "failure",
    [problem(429, retry_after="1"), problem(503, retry_after="0"), httpx.ConnectError, httpx.ConnectTimeout],
    ids=["429", "503", "refused", "connect-timeout"],
)
def test_a_call_that_was_certainly_not_processed_is_retried(send: Send, call: Call[object], failure: Answer) -> None:
    wire = Wire([failure, failure, FREEZE])
    send(call, wire.transport)
    assert len(wire.requests) == 3


@pytest.mark.parametrize("failure", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError])
def test_a_read_is_retried_after_a_lost_response(send: Send, failure: Answer) -> None:
    wire = Wire([failure, FREEZE])
    assert send(READ, wire.transport).document.frozen
    assert len(wire.requests) == 2


@pytest.mark.parametrize("failure", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError])
def test_a_conditional_write_is_not_retried_after_a_lost_response(send: Send, failure: Answer) -> None:
    """The first attempt may have succeeded; a second one would then be refused with 412."""
    wire = Wire([failure, FREEZE])
    with pytest.raises(ConnectionFailedError) as caught:
        send(CONDITIONAL_WRITE, wire.transport)
    assert caught.value.sent
    assert len(wire.requests) == 1


def test_a_status_report_is_retried_after_a_lost_response(send: Send) -> None:
    wire = Wire([httpx.ReadTimeout, httpx.Response(204)])
    send(op.report_target_status("chat", STATUS), wire.transport)
    assert len(wire.requests) == 2


def test_all_attempts_at_a_creation_carry_one_idempotency_key(send: Send) -> None:
    wire = Wire([httpx.ReadTimeout, problem(503, retry_after="1"), TOKEN_MADE])
    send(make_token(), wire.transport)
    keys = [request.headers["Idempotency-Key"] for request in wire.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_every_creation_has_its_own_idempotency_key(send: Send) -> None:
    wire = Wire([TOKEN_MADE])
    for _ in range(3):
        send(make_token(), wire.transport)
    assert len({request.headers["Idempotency-Key"] for request in wire.requests}) == 3


@pytest.mark.parametrize(
    "refusal",
    [
        problem(503),  # without Retry-After
        problem(503, retry_after="Fri, 20 Nov 2026 12:00:00 GMT"),
        problem(429, retry_after="11"),  # longer than the client waits
        problem(500, retry_after="1"),
        problem(409, retry_after="1"),
        problem(404),
        problem(412),
    ],
    ids=["503", "503-date", "429-long", "500", "409", "404", "412"],
)
def test_other_error_responses_are_not_retried(send: Send, refusal: httpx.Response) -> None:
    wire = Wire([refusal, FREEZE])
    with pytest.raises(ProblemError) as caught:
        send(READ, wire.transport)
    assert caught.value.problem.status == refusal.status_code
    assert len(wire.requests) == 1


def test_readiness_checks_are_not_retried(send: Send) -> None:
    wire = Wire([problem(503, retry_after="1"), httpx.Response(200, json={"status": "ok"})])
    with pytest.raises(ServerError):
        send(op.check_ready(), wire.transport)
    assert len(wire.requests) == 1


def test_the_number_of_attempts_is_bounded(send: Send) -> None:
    wire = Wire([problem(429, retry_after="3")])
    with pytest.raises(RateLimitedError) as caught:
        send(READ, wire.transport, retries=Retries(attempts=3))
    assert caught.value.retry_after_s == 3.0
    assert len(wire.requests) == 3


def test_a_retry_waits_for_the_time_in_retry_after(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []

    async def note_asynchronous(wait_s: float) -> None:
        waits_s.append(wait_s)

    monkeypatch.setattr(time, "sleep", waits_s.append)
    monkeypatch.setattr("asyncio.sleep", note_asynchronous)
    wire = Wire([problem(429, retry_after="2"), problem(503, retry_after="7"), FREEZE])
    with stamina.set_testing(testing=False):
        send(READ, wire.transport)
    assert waits_s == [2.0, 7.0]
