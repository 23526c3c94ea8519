"""What this package needs of a Ray cluster: nodes, named actors, calls on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from deploy.common.errors import ActuationError


class RayMissingError(ActuationError):
    """Ray is not installed here."""


class ActorExistsError(ActuationError):
    """An actor of that name exists already."""


class ActorNotFoundError(ActuationError):
    """There is no actor of that name, or it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One living node."""

    node_id: str
    name: str
    address: str
    is_head: bool = False
    draining: bool = False
    gpus: int = 0
    accelerator: str | None = None
    ports: frozenset[int] = frozenset()  # of Ray's daemons


class Cluster(Protocol):
    """A cluster; names are those of one namespace."""

    def nodes(self) -> tuple[NodeFacts, ...]: ...

    def names(self) -> frozenset[str]:
        """Return the names of actors that live or that Ray restarts."""
        ...

    def create(
        self,
        actor_class: type,
        name: str,
        *args: Any,
        node_id: str | None,
        pinned: bool,
        options: Mapping[str, Any],
    ) -> None:
        """Create a detached actor on a node: only there if `pinned`, else preferably there.  Raise ActorExistsError.

        `options` are Ray's actor options.
        """
        ...

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """Return the result of a method of an actor.  Raise ActorNotFoundError, UnreachableError."""
        ...

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Return the results of a method of many actors, each with its argument, without actors that do not respond."""
        ...

    def kill(self, name: str) -> None:
        """End an actor for good; without effect where there is none."""
        ...
