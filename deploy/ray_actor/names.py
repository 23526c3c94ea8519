"""The names of the actors, from which a list of actors shows which belong together.

NAME.gGENERATION                          a controller; each upgrade creates the next generation
NAME.gGENERATION.watch.INDEX.NODE         its node actor on a node; INDEX is the node's index in recordings
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HOST = re.compile(r"(?P<name>[a-z0-9-]+)\.g(?P<generation>[0-9]{1,9})")
_WATCHER = re.compile(rf"{_HOST.pattern}\.watch\.(?P<index>[0-9]{{1,5}})\.(?P<node_id>[0-9a-f]+)")


@dataclass(frozen=True, slots=True, order=True)
class ControllerName:
    """The name of a controller's actor."""

    name: str
    generation: int

    def __str__(self) -> str:
        return f"{self.name}.g{self.generation}"


@dataclass(frozen=True, slots=True, order=True)
class NodeActorName:
    """The name of a node actor."""

    host: ControllerName
    index: int
    node_id: str

    def __str__(self) -> str:
        return f"{self.host}.watch.{self.index}.{self.node_id}"


def controllers_among(names: Iterable[str]) -> list[ControllerName]:
    """Return the controllers, by name and generation."""
    found = (_HOST.fullmatch(name) for name in names)
    return sorted(ControllerName(each["name"], int(each["generation"])) for each in found if each)


def node_actors_among(names: Iterable[str]) -> list[NodeActorName]:
    """Return the node actors, by controller and index."""
    found = (_WATCHER.fullmatch(name) for name in names)
    return sorted(
        NodeActorName(ControllerName(each["name"], int(each["generation"])), int(each["index"]), each["node_id"])
        for each in found
        if each
    )
