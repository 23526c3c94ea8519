"""A call is sent again when that can do no harm, and only then; both clients agree."""

import time

import httpx
import pytest
import stamina

from api.client import ConnectionFailedError, ProblemError, RateLimitedError, Retries, ServerError
from api.client import operations as op
from api.client.calls import Call
from api.schemas.targets import Freeze, Phase, TargetStatus
from api.schemas.tokens import Scope, TokenCreated, TokenRequest
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
    return op.create_token(TokenRequest(name="ci", scopes=frozenset({Scope.READ})))


@pytest.mark.parametrize("call", [READ, CONDITIONAL_WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    "trouble",
    [problem(429, retry_after="1"), problem(503, retry_after="0"), httpx.ConnectError, httpx.ConnectTimeout],
    ids=["429", "503", "refused", "connect-timeout"],
)
def test_what_was_certainly_not_done_is_sent_again(send: Send, call: Call[object], trouble: Answer) -> None:
    wire = Wire([trouble, trouble, FREEZE])
    send(call, wire.transport)
    assert len(wire.requests) == 3


@pytest.mark.parametrize("trouble", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError])
def test_a_read_is_sent_again_after_a_lost_answer(send: Send, trouble: Answer) -> None:
    wire = Wire([trouble, FREEZE])
    assert send(READ, wire.transport).document.frozen
    assert len(wire.requests) == 2


@pytest.mark.parametrize("trouble", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError])
def test_a_conditional_write_is_not_sent_again_after_a_lost_answer(send: Send, trouble: Answer) -> None:
    """It may have been done; a second try would then be refused (412) for what the first one did."""
    wire = Wire([trouble, FREEZE])
    with pytest.raises(ConnectionFailedError) as caught:
        send(CONDITIONAL_WRITE, wire.transport)
    assert caught.value.sent
    assert len(wire.requests) == 1


def test_a_report_may_be_repeated(send: Send) -> None:
    wire = Wire([httpx.ReadTimeout, httpx.Response(204)])
    send(op.report_target_status("chat", STATUS), wire.transport)
    assert len(wire.requests) == 2


def test_every_attempt_at_a_creation_carries_the_same_key(send: Send) -> None:
    wire = Wire([httpx.ReadTimeout, problem(503, retry_after="1"), TOKEN_MADE])
    send(make_token(), wire.transport)
    keys = [request.headers["Idempotency-Key"] for request in wire.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_every_creation_has_its_own_key(send: Send) -> None:
    wire = Wire([TOKEN_MADE])
    for _ in range(3):
        send(make_token(), wire.transport)
    assert len({request.headers["Idempotency-Key"] for request in wire.requests}) == 3


@pytest.mark.parametrize(
    "refusal",
    [
        problem(503),  # nobody said that later would be better
        problem(503, retry_after="Fri, 20 Nov 2026 12:00:00 GMT"),
        problem(429, retry_after="11"),  # longer than a caller should be kept waiting unasked
        problem(500, retry_after="1"),
        problem(409, retry_after="1"),
        problem(404),
        problem(412),
    ],
    ids=["503", "503-date", "429-long", "500", "409", "404", "412"],
)
def test_a_final_answer_is_final(send: Send, refusal: httpx.Response) -> None:
    wire = Wire([refusal, FREEZE])
    with pytest.raises(ProblemError) as caught:
        send(READ, wire.transport)
    assert caught.value.problem.status == refusal.status_code
    assert len(wire.requests) == 1


def test_probes_want_the_answer_of_this_moment(send: Send) -> None:
    wire = Wire([problem(503, retry_after="1"), httpx.Response(200, json={"status": "ok"})])
    with pytest.raises(ServerError):
        send(op.check_ready(), wire.transport)
    assert len(wire.requests) == 1


def test_trying_again_has_an_end(send: Send) -> None:
    wire = Wire([problem(429, retry_after="3")])
    with pytest.raises(RateLimitedError) as caught:
        send(READ, wire.transport, retries=Retries(attempts=3))
    assert caught.value.retry_after_s == 3.0
    assert len(wire.requests) == 3


def test_waits_as_long_as_the_service_asks(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []

    async def note_asynchronous(wait_s: float) -> None:
        waits_s.append(wait_s)

    monkeypatch.setattr(time, "sleep", waits_s.append)
    monkeypatch.setattr("asyncio.sleep", note_asynchronous)
    wire = Wire([problem(429, retry_after="2"), problem(503, retry_after="7"), FREEZE])
    with stamina.set_testing(testing=False):
        send(READ, wire.transport)
    assert waits_s == [2.0, 7.0]
