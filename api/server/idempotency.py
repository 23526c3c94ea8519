"""Executes the same POST with the same idempotency key once, and repeats the response.

The response commits with the work itself, so no crash can separate them.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import Response

from api.server.auth import Principal
from api.server.service import Service
from api.store import KeyTakenError, NewReply, SavedReply, Transaction

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
        digest = hashlib.sha256(f"{request.method} {request.url.path}\n".encode())
        digest.update(await request.body())
        return cls(service=service, principal=principal, key=key, fingerprint=digest.hexdigest())

    async def saved(self) -> Response | None:
        """Return the response of an earlier request with this key."""
        if self._key is None:
            return None
        async with self._service.store.reading() as tx:
            saved = await tx.replies.find(
                actor=self._principal.actor, key=self._key, fingerprint=self._fingerprint, now=self._service.now()
            )
        return _response(saved, replayed=True) if saved is not None else None

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


def _response(reply: SavedReply, *, replayed: bool = False) -> Response:
    headers = dict(reply.headers) | ({"Idempotent-Replayed": "true"} if replayed else {})
    return Response(content=reply.body, status_code=reply.status, headers=headers, media_type="application/json")
