"""Stores API tokens: hash of the secret, scopes, expiry."""

from datetime import datetime
from typing import Any

from sqlalchemy import exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import TokenRecord
from api.store.tables import TokenRow

TABLE = TokenRow.__table__


class TokenRepository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, token: TokenRecord) -> None:
        await self._connection.execute(
            insert(TokenRow).values(
                id=token.id,
                name=token.name,
                secret_sha256=token.secret_sha256,
                scopes=" ".join(sorted(token.scopes)),
                created_at=token.created_at,
                created_by=token.created_by,
                expires_at=token.expires_at,
                revoked_at=token.revoked_at,
            )
        )

    async def get(self, token_id: str) -> TokenRecord | None:
        """Return one token, valid or not."""
        row = (await self._connection.execute(select(TABLE).where(TokenRow.id == token_id))).one_or_none()
        return _record(row) if row is not None else None

    async def page(self, *, before_id: str | None, limit: int) -> list[TokenRecord]:
        """Return the newest tokens before an id."""
        query = select(TABLE).order_by(TokenRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(TokenRow.id < before_id)
        return [_record(row) for row in await self._connection.execute(query)]

    async def revoke(self, token_id: str, *, at: datetime) -> bool:
        """Revoke a token; False when no valid token has this id."""
        query = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None)).values(revoked_at=at)
        return (await self._connection.execute(query)).rowcount == 1

    async def any(self) -> bool:
        """Return whether any token exists, valid or not."""
        return bool((await self._connection.execute(select(exists().select_from(TokenRow)))).scalar_one())


def _record(row: Any) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        name=row.name,
        secret_sha256=row.secret_sha256,
        scopes=frozenset(row.scopes.split()),
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
