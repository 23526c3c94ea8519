"""A list that follows changes: read once, then event by event, and read again where the server has forgotten."""

from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.common.clock import Clock
from deploy.common.errors import UnreachableError
from deploy.common.kubernetes_client import RefusedError
from deploy.node_discovery.cached_list import CachedList, ChangesServer

pytestmark = pytest.mark.anyio
PATH = "/api/v1/nodes"
CLOCK = Clock(now=lambda: datetime(2026, 11, 21, tzinfo=UTC))


def node(name: str, version: int, *, gpus: int = 8) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "gpus": gpus}


class Double(ChangesServer):
    """An API server with pages of two nodes and the events of the next watches."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        object.__setattr__(self, "nodes", list(nodes))
        object.__setattr__(self, "watches", [])
        object.__setattr__(self, "calls", [])

    nodes: list[dict[str, Any]]
    watches: list[Any]  # events, or an error
    calls: list[str]

    async def get(self, path: str, **query: str) -> Any:
        assert path == PATH
        start = int(query.get("continue", "0"))
        self.calls.append(f"list {start}")
        following = str(start + 2) if start + 2 < len(self.nodes) else ""
        return {
            "metadata": {"resourceVersion": "100", "continue": following},
            "items": self.nodes[start : start + 2],
        }

    async def changes(self, path: str, **query: str) -> list[Any]:
        assert path == PATH
        self.calls.append(f"watch {query['resourceVersion']}")
        found = self.watches.pop(0)
        if isinstance(found, Exception):
            raise found
        return list(found)


def cached(**more: Any) -> CachedList:
    return CachedList(path=PATH, keep=lambda item: item if item["gpus"] else None, **more)


def names(found: CachedList) -> set[str]:
    return {item["metadata"]["name"] for item in found.items}


async def test_pages_are_read_once_and_then_the_events_since_the_last_version() -> None:
    server, found = Double(node("a", 1), node("b", 2), node("c", 3), node("cpu", 4, gpus=0)), cached()
    await found.refresh(server, clock=CLOCK)
    assert names(found) == {"a", "b", "c"}
    server.watches.append(
        [
            {"type": "DELETED", "object": node("a", 101)},
            {"type": "MODIFIED", "object": node("b", 102, gpus=0)},
            {"type": "ADDED", "object": node("d", 103)},
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "150"}}},
        ]
    )
    await found.refresh(server, clock=CLOCK)
    assert names(found) == {"c", "d"}
    revision = found.revision
    server.watches.append([])
    await found.refresh(server, clock=CLOCK)
    assert server.calls == ["list 0", "list 2", "watch 100", "watch 150"]
    assert found.revision == revision, "nothing changed"


@pytest.mark.parametrize(
    "gone",
    [
        RefusedError("410: too old", status=410),
        [{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}],
    ],
)
async def test_the_list_is_read_again_where_the_server_has_forgotten_the_version(gone: Any) -> None:
    server, found = Double(node("a", 1)), cached()
    await found.refresh(server, clock=CLOCK)
    server.nodes[:] = [node("b", 9)]
    server.watches.append(gone)
    await found.refresh(server, clock=CLOCK)
    assert (names(found), server.calls) == ({"b"}, ["list 0", "watch 100", "list 0"])


async def test_after_an_error_the_list_is_read_as_a_whole_and_keeps_its_time_until_then() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    server, found = Double(node("a", 1)), cached()
    await found.refresh(server, clock=CLOCK)
    server.watches.append(UnreachableError("no response"))
    with pytest.raises(UnreachableError):
        await found.refresh(server, clock=Clock(now=lambda: now))
    assert found.read_at == CLOCK.now()
    await found.refresh(server, clock=Clock(now=lambda: now))
    assert (found.read_at, server.calls[-1]) == (now, "list 0")
