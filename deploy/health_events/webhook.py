"""A webhook: each event as JSON by POST, signed, in order, with an id that is the same in every attempt.

Headers and signature are those of the Standard Webhooks specification:

    webhook-id          the event's id
    webhook-timestamp   Unix time of the attempt, s
    webhook-signature   "v1," + base64(HMAC-SHA256(key, id + "." + timestamp + "." + body))

The receiver compares the signature, refuses old timestamps, and drops ids that it has processed.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import httpx

from api.schemas.health_events import HealthEvent, OutletName
from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.text import first_line, reason_of

TIMEOUT_S: Final = 10.0
MIN_KEY_BYTES: Final = 16
KEY_PREFIX: Final = "whsec_"


class SecretError(ActuationError):
    """The secret of a webhook is not usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOutlet:
    url: str
    key: bytes = field(repr=False)
    http: httpx.AsyncClient  # of `target_client`, which refuses hosts that are not allowed
    now: Callable[[], datetime]
    name: OutletName = field(default=OutletName.WEBHOOK, init=False)
    with_diagnoses: bool = field(default=True, init=False)
    with_history: bool = field(default=True, init=False)

    def takes(self, event: HealthEvent) -> bool:
        return event.node is not None or event.switch is not None

    def describe(self, event: HealthEvent) -> str:
        return f"POST {self._shown_url} {payload(event)['type']}"

    async def send(self, event: HealthEvent) -> str:
        body = json.dumps(payload(event), separators=(",", ":")).encode()
        headers = signed_headers(self.key, event_id=event.id, at=self.now(), body=body)
        try:
            response = await self.http.post(
                self.url, content=body, headers={"Content-Type": "application/json", **headers}, timeout=TIMEOUT_S
            )
        except httpx.RequestError as error:
            raise UnreachableError(f"{self._shown_url} does not respond: {reason_of(error)}") from error
        if response.is_success:
            return f"accepted with {response.status_code}"
        text = f"{self._shown_url} returned {response.status_code}: {first_line(response.text)}"
        is_gone = response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise (UnreachableError if is_gone or response.status_code in _LATER else ActuationError)(text)

    async def close(self) -> None:
        await self.http.aclose()

    @property
    def _shown_url(self) -> str:
        """Return the URL without its path and query, which can have a token."""
        url = httpx.URL(self.url)
        return f"{url.scheme}://{url.netloc.decode()}"


_LATER: Final = frozenset((HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS))


def payload(event: HealthEvent) -> Mapping[str, Any]:
    kind = "node" if event.node is not None else "switch"
    shown = event.model_dump(mode="json")
    return {"type": f"{kind}.{event.state.value}", "timestamp": shown["at"], "data": shown}


def signed_headers(key: bytes, *, event_id: str, at: datetime, body: bytes) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    signed = b".".join((event_id.encode(), timestamp.encode(), body))
    signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": event_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{signature}"}


def key_of(secret: str) -> bytes:
    """Return the key of a secret: `whsec_` and base64, or any other text of 16 bytes or more."""
    text = secret.strip()
    try:
        encoded = text.removeprefix(KEY_PREFIX)
        key = base64.b64decode(encoded, validate=True) if text.startswith(KEY_PREFIX) else text.encode()
    except binascii.Error as error:
        raise SecretError(f"the secret of the webhook begins with {KEY_PREFIX} and is not base64") from error
    if len(key) < MIN_KEY_BYTES:
        raise SecretError(f"the secret of the webhook has {len(key)} bytes, allowed: {MIN_KEY_BYTES} and more")
    return key
