"""Keeps token records for a moment, so that a request of a busy caller does not read its token again.

A revocation clears the cache of its process at once.  Other replicas learn of it within `KEPT_S`.
"""

from collections.abc import Callable
from typing import Final

from api.store import Store, TokenRecord

KEPT_S: Final = 1.0
MAX_TOKENS: Final = 10_000


class TokenCache:
    def __init__(self, *, store: Store, monotonic_s: Callable[[], float]) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._records: dict[str, tuple[TokenRecord, float]] = {}
        self._cleared = 0

    async def get(self, token_id: str) -> TokenRecord | None:
        """Return a stored token, valid or not.  What does not exist is not kept."""
        now_s = self._monotonic_s()
        record, read_s = self._records.get(token_id, (None, 0.0))
        if record is not None and now_s - read_s < KEPT_S:
            return record
        cleared = self._cleared
        async with self._store.reading(single=True) as tx:
            record = await tx.tokens.get(token_id)
        if record is None or cleared != self._cleared:  # read, perhaps, before a revocation
            return record
        if len(self._records) >= MAX_TOKENS:
            self._records.clear()
        self._records[token_id] = (record, now_s)
        return record

    def clear(self) -> None:
        """Forget every token; after each commit that revokes any."""
        self._cleared += 1
        self._records.clear()
