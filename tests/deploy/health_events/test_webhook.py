"""The webhook: its signature, its secret, and the hosts that it may call."""

import base64
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import httpx
import pytest

from api.schemas.health_events import HealthEvent, HealthState
from api.schemas.target_hosts import CLUSTER_HOSTS, LOOPBACK_HOSTS, AllowedHosts
from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.target_http import target_client
from deploy.health_events.webhook import SecretError, WebhookOutlet, key_of, signed_headers
from tests.deploy.health_events.receiver import KEY, Receiver, webhook_receiver

pytestmark = pytest.mark.anyio
AT = datetime(2026, 11, 21, tzinfo=UTC)
EVENT = HealthEvent(id="b" * 32, at=AT, state=HealthState.OUT_OF_SERVICE, node="gpu-3")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver() as receiver:
        yield receiver


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with target_client(AllowedHosts.parse(LOOPBACK_HOSTS)) as http:
        yield http


def outlet(url: str, http: httpx.AsyncClient) -> WebhookOutlet:
    return WebhookOutlet(url=url, key=KEY, http=http, now=lambda: AT)


async def test_a_repeated_event_has_the_same_id_and_a_right_signature(
    receiver: Receiver, http: httpx.AsyncClient
) -> None:
    assert [await outlet(receiver.url, http).send(EVENT) for _ in range(2)] == ["accepted with 200"] * 2
    assert (receiver.attempts, list(receiver.events)) == ([(EVENT.id, True)] * 2, [EVENT.id])
    (payload,) = receiver.events.values()
    assert (payload["type"], payload["timestamp"]) == ("node.out-of-service", "2026-11-21T00:00:00Z")
    assert HealthEvent.model_validate(payload["data"]) == EVENT


def test_the_signature_is_that_of_the_example_of_the_specification() -> None:
    """The secret, message and signature are the published test vector of Standard Webhooks."""
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers(
        key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        event_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=at,
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("status", "error"),
    [(302, ActuationError), (401, ActuationError), (429, UnreachableError), (503, UnreachableError)],
)
async def test_other_statuses_are_errors_without_the_secret_part_of_the_url(
    receiver: Receiver, http: httpx.AsyncClient, status: int, error: type[ActuationError]
) -> None:
    receiver.status = status
    with pytest.raises(error, match=f"returned {status}") as raised:
        await outlet(f"{receiver.url}/secret-path?token=x", http).send(EVENT)
    assert "secret" not in str(raised.value)
    assert (type(raised.value), len(receiver.attempts)) == (error, 1)


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "10.0.0.1", "0.0.0.0"])
async def test_a_host_that_is_not_allowed_is_not_called(host: str) -> None:
    async with target_client(AllowedHosts.parse(CLUSTER_HOSTS)) as http:
        with pytest.raises(UnreachableError, match=r"may be there|is not among the allowed hosts"):
            await outlet(f"http://{host}/hook", http).send(EVENT)


async def test_a_receiver_that_is_gone_is_reported(http: httpx.AsyncClient) -> None:
    with webhook_receiver() as receiver:
        url = receiver.url
    with pytest.raises(UnreachableError, match="does not respond"):
        await outlet(url, http).send(EVENT)


def test_a_secret_is_text_or_base64() -> None:
    assert key_of("0123456789abcdef\n") == b"0123456789abcdef"
    assert key_of(f"whsec_{base64.b64encode(KEY).decode()}") == KEY
    with pytest.raises(SecretError, match="has 5 bytes, allowed: 16 and more"):
        key_of("short")
    with pytest.raises(SecretError, match="is not base64"):
        key_of("whsec_???")
