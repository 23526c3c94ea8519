"""What the actors are called, so that whoever lists them knows all there is to know of who belongs to whom.

NAME.gGENERATION                          a controller; each upgrade begins the next generation
NAME.gGENERATION.watch.INDEX.NODE         its watcher on a node; INDEX is the node's in what it records
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HOST = re.compile(r"(?P<name>[a-z0-9-]+)\.g(?P<generation>[0-9]{1,9})")
_WATCHER = re.compile(rf"{_HOST.pattern}\.watch\.(?P<index>[0-9]{{1,5}})\.(?P<node_id>[0-9a-f]+)")


@dataclass(frozen=True, slots=True, order=True)
class HostName:
    """Of a controller's actor."""

    name: str
    generation: int

    def __str__(self) -> str:
        return f"{self.name}.g{self.generation}"


@dataclass(frozen=True, slots=True, order=True)
class WatcherName:
    """Of a node's watcher."""

    host: HostName
    index: int
    node_id: str

    def __str__(self) -> str:
        return f"{self.host}.watch.{self.index}.{self.node_id}"


def hosts_among(names: Iterable[str]) -> list[HostName]:
    """The controllers, by name and generation."""
    found = (_HOST.fullmatch(name) for name in names)
    return sorted(HostName(each["name"], int(each["generation"])) for each in found if each)


def watchers_among(names: Iterable[str]) -> list[WatcherName]:
    """The watchers, by controller and index."""
    found = (_WATCHER.fullmatch(name) for name in names)
    return sorted(
        WatcherName(HostName(each["name"], int(each["generation"])), int(each["index"]), each["node_id"])
        for each in found
        if each
    )
