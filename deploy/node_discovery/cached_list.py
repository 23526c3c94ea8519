"""A list of Kubernetes objects that is kept current by what changed since it was read.

    GET .../nodes?limit=500                                     the first time, page by page
    GET .../nodes?watch=true&resourceVersion=V&timeoutSeconds=1   from then on: the events since V, and the end

The server keeps the events of the last minutes in memory.  Where it has them no longer (410), the list is read again.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import JSON, KubernetesServer, RefusedError

PAGE: Final = 500
WATCH_S: Final = 1

Json = Mapping[str, Any]


class ChangesServer(KubernetesServer):
    """An API server of which changes are read too."""

    @property
    def host(self) -> str:
        return self._host

    async def changes(self, path: str, **query: str) -> list[Json]:
        """Return the events of a watch from its resource version until its time is over."""
        parameters = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S), **query}
        content = await self._content("GET", path, parameters, None, JSON)
        try:
            return [json.loads(line) for line in content.splitlines() if line]
        except ValueError as error:
            raise ActuationError(f"{self._host} returned no valid watch of {path}: {error}") from error


@dataclass(slots=True, kw_only=True)
class CachedList:
    """The objects at one path; `keep` returns the used part of an object, or None for an object without use."""

    path: str
    keep: Callable[[Json], Json | None]
    query: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False  # the API server may not have this kind
    read_at: datetime | None = None  # the list is at least as new
    revision: int = 0  # changes with the content
    _kept: dict[tuple[str, str], Json] = field(default_factory=dict)
    _version: str | None = None

    @property
    def items(self) -> list[Json]:
        return list(self._kept.values())

    async def refresh(self, server: ChangesServer, *, clock: Clock) -> None:
        """Read what changed; on any error, the list is read as a whole the next time."""
        version, self._version = self._version, None
        begun_at = clock.now()
        if version is None:
            version = await self._list(server)
        else:
            try:
                version = self._apply(await server.changes(self.path, resourceVersion=version, **self.query), version)
            except RefusedError as error:
                if error.status != HTTPStatus.GONE:
                    raise
                version = await self._list(server)
        self._version, self.read_at = version, begun_at

    async def _list(self, server: ChangesServer) -> str | None:
        kept: dict[tuple[str, str], Json] = {}
        following: dict[str, str] = {}
        while True:
            try:
                page = await server.get(self.path, limit=str(PAGE), **self.query, **following)
            except RefusedError as error:
                if error.status == HTTPStatus.NOT_FOUND and self.optional:
                    return None
                raise
            kept |= {_key(item): used for item in page["items"] if (used := self.keep(item)) is not None}
            if not (after := page["metadata"].get("continue")):
                break
            following = {"continue": after}
        self._kept, self.revision = kept, self.revision + 1
        return str(page["metadata"]["resourceVersion"])

    def _apply(self, events: list[Json], version: str) -> str:
        for event in events:
            item = event["object"]
            if event["type"] == "ERROR":
                raise RefusedError(f"the watch of {self.path} ended: {item.get('message')}", status=item.get("code", 0))
            version = str(item["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                self._replace(_key(item), None if event["type"] == "DELETED" else self.keep(item))
        return version

    def _replace(self, key: tuple[str, str], used: Json | None) -> None:
        if self._kept.get(key) == used:
            return  # such as the heartbeat of a node
        self.revision += 1
        if used is None:
            del self._kept[key]
        else:
            self._kept[key] = used


def _key(item: Json) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
