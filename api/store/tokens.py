"""Keeps the API tokens: hash of the secret, scopes, project, expiry."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import exists, insert, or_, select, update

from api.store.records import TokenRecord
from api.store.repositories import Repository
from api.store.tables import TokenRow


class TokenRepository(Repository):
    """Keeps API tokens: hash of the secret, scopes, expiry."""

    async def add(self, token: TokenRecord) -> None:
        values = asdict(token) | {"scopes": " ".join(sorted(token.scopes))}
        await self._connection.execute(insert(TokenRow).values(**values))

    async def get(self, token_id: str) -> TokenRecord | None:
        """Return one token, valid or not."""
        row = await self._row(select(TokenRow.__table__).where(TokenRow.id == token_id))
        return _token(row) if row is not None else None

    async def page(self, *, before_id: str | None, limit: int) -> list[TokenRecord]:
        """Return the newest tokens before an id."""
        query = select(TokenRow.__table__).order_by(TokenRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(TokenRow.id < before_id)
        return [_token(row) for row in await self._rows(query)]

    async def valid_of(self, project: str, *, now: datetime) -> list[str]:
        """Return the ids of some tokens of a project that are neither revoked nor expired."""
        never = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now)
        query = select(TokenRow.id).where(TokenRow.project == project, TokenRow.revoked_at.is_(None), never).limit(3)
        return [row["id"] for row in await self._rows(query)]

    async def revoke(self, token_id: str, *, at: datetime) -> bool:
        """Revoke a token; False when no valid token has this id."""
        query = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None)).values(revoked_at=at)
        return (await self._connection.execute(query)).rowcount == 1

    async def any(self) -> bool:
        """Return whether any token exists, valid or not."""
        return bool((await self._connection.execute(select(exists().select_from(TokenRow)))).scalar_one())


def _token(row: Mapping[str, Any]) -> TokenRecord:
    return TokenRecord(**{**row, "scopes": frozenset(row["scopes"].split())})
