"""Stores responses for idempotency keys, in the transaction of the work itself.

The second request to save a key violates the primary key, rolls its work back and returns the first response.  The work
may run twice but takes effect once.
"""

import json
from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.canonical import canonical_json
from api.store.errors import KeyReusedError, KeyTakenError
from api.store.records import NewReply, SavedReply
from api.store.tables import ReplyRow

TABLE = ReplyRow.__table__


class ReplyRepository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def find(self, *, actor: str, key: str, fingerprint: str, now: datetime) -> SavedReply | None:
        """Return the stored response; KeyReusedError when the key belongs to another request."""
        query = select(TABLE).where(ReplyRow.actor == actor, ReplyRow.key == key, ReplyRow.expires_at > now)
        row = (await self._connection.execute(query)).one_or_none()
        if row is None:
            return None
        if row.fingerprint != fingerprint:
            raise KeyReusedError("this key was used for another request")
        return SavedReply(status=row.status, headers=json.loads(row.headers), body=row.body)

    async def save(self, reply: NewReply, *, now: datetime) -> None:
        """Store a response; KeyTakenError when another request has saved the key."""
        await self._connection.execute(delete(ReplyRow).where(ReplyRow.expires_at <= now))
        try:
            await self._connection.execute(
                insert(ReplyRow).values(
                    actor=reply.actor,
                    key=reply.key,
                    fingerprint=reply.fingerprint,
                    status=reply.status,
                    headers=canonical_json(dict(reply.headers)),
                    body=reply.body,
                    expires_at=reply.expires_at,
                )
            )
        except IntegrityError as error:
            raise KeyTakenError("this idempotency key was taken meanwhile") from error
