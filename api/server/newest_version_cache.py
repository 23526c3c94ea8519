"""Caches what is computed from the newest version of each document."""

from collections.abc import Callable
from typing import Generic, TypeVar

from api.store import DocumentRecord

T = TypeVar("T")


class NewestVersionCache(Generic[T]):
    """Calls `compute` once for each version of a document, and keeps the result until another version is requested.

    A cache by version would keep old versions, which no one reads again: its memory would grow with each write.
    """

    def __init__(self, compute: Callable[[DocumentRecord], T], *, max_documents: int) -> None:
        self._compute = compute
        self._max_documents = max_documents
        self._newest: dict[str, tuple[DocumentRecord, T]] = {}  # by the document's name, which is unique in its kind

    def get(self, stored: DocumentRecord) -> T:
        kept = self._newest.get(stored.name)
        if kept is not None and kept[0] == stored:
            return kept[1]
        found = self._compute(stored)
        if kept is None and len(self._newest) >= self._max_documents:
            self._newest.clear()
        self._newest[stored.name] = (stored, found)
        return found
