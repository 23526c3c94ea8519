"""Executes the same POST with the same idempotency key once, and repeats the response.

The response commits with the work itself, so no crash can separate them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import Response

from api.server.auth import Principal
from api.server.jobs import fingerprint_of
from api.server.service import Service
from api.store import KeyTakenError, NewReply, SavedReply, Transaction

REPLAYED = "Idempotent-Replayed"
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text; the service executes the same request with the same key once.",
    ),
]


@dataclass(frozen=True, slots=True)
class Reply:
    """Holds a response, and the body to store where it differs (a secret is not stored)."""

    body: str
    status: int = HTTPStatus.CREATED
    headers: Mapping[str, str] = field(default_factory=dict)
    kept_body: str | None = None


class IdempotentRequest:
    """Executes one POST at most once per key."""

    def __init__(self, *, service: Service, principal: Principal, key: str | None, fingerprint: str) -> None:
        self._service = service
        self._principal = principal
        self._key = key
        self._fingerprint = fingerprint

    @classmethod
    async def of(
        cls, request: Request, *, service: Service, principal: Principal, key: str | None
    ) -> "IdempotentRequest":
        fingerprint = fingerprint_of(request, await request.body())
        return cls(service=service, principal=principal, key=key, fingerprint=fingerprint)

    async def saved(self) -> Response | None:
        """Return the response of an earlier request with this key."""
        return await saved_response(
            self._service, actor=self._principal.actor, key=self._key, fingerprint=self._fingerprint
        )

    async def write(self, work: Callable[[Transaction], Awaitable[Reply]]) -> Response:
        """Do the work and store its response, in one transaction."""
        try:
            async with self._service.store.transaction() as tx:
                reply = await work(tx)
                await self._keep(tx, reply)
        except KeyTakenError:
            earlier = await self.saved()
            if earlier is None:
                raise
            return earlier
        return _response(SavedReply(status=reply.status, headers=reply.headers, body=reply.body))

    async def _keep(self, tx: Transaction, reply: Reply) -> None:
        if self._key is None:
            return
        now = self._service.now()
        kept = NewReply(
            actor=self._principal.actor,
            key=self._key,
            fingerprint=self._fingerprint,
            status=reply.status,
            headers=reply.headers,
            body=reply.kept_body if reply.kept_body is not None else reply.body,
            expires_at=now + timedelta(seconds=self._service.settings.idempotency_ttl_s),
        )
        await tx.replies.save(kept, now=now)


async def saved_response(service: Service, *, actor: str, key: str | None, fingerprint: str) -> Response | None:
    """Return the stored response of an earlier request with a key."""
    if key is None:
        return None
    async with service.store.reading() as tx:
        saved = await tx.replies.find(actor=actor, key=key, fingerprint=fingerprint, now=service.now())
    return _response(saved, replayed=True) if saved is not None else None


def _response(reply: SavedReply, *, replayed: bool = False) -> Response:
    headers = dict(reply.headers) | ({REPLAYED: "true"} if replayed else {})
    return Response(content=reply.body, status_code=reply.status, headers=headers, media_type="application/json")
