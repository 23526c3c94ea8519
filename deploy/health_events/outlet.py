"""The two interfaces to other systems: an outlet sends health events, a node source observes nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from api.schemas.health_events import HealthEvent, OutletName
from deploy.common.errors import ActuationError


class NotOwnedError(ActuationError):
    """Another tool or person has taken the node out of service; nothing was changed."""


class Outlet(Protocol):
    """Sends events of one system.  Repeating an event has no further effect, because a sender can die after it."""

    @property
    def name(self) -> OutletName: ...

    @property
    def with_diagnoses(self) -> bool:
        """Return whether diagnoses of nodes in service are events too; else only nodes that leave and return are."""

    @property
    def with_history(self) -> bool:
        """Return whether every event is sent, in order; else only the newest is."""

    def takes(self, event: HealthEvent) -> bool:
        """Return whether the system can represent the event's component."""

    def describe(self, event: HealthEvent) -> str:
        """Return in one line what `send` would do."""

    async def send(self, event: HealthEvent) -> str:
        """Send the event and return the result as text.

        Raise NotOwnedError where another owner has the node, UnreachableError where the system does not respond, and
        ActuationError where it refuses.
        """

    async def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """A fault that another system reports of a node."""

    source: str  # such as nvsentinel
    kind: str  # such as SysLogsXIDError
    since: str  # as the source writes it; empty if it does not
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    name: str
    pool: str = "default"
    domains: tuple[str, ...] = ()  # rack, leaf, power domain
    available: bool = True  # takes work
    idle: bool = False  # has no work, so that it can be a spare
    owner: str | None = None  # who took it out of service, if not Fleetwright
    conditions: tuple[NodeCondition, ...] = ()


class NodeSource(Protocol):
    @property
    def name(self) -> str: ...

    async def observe(self) -> Mapping[str, ObservedNode]:
        """Return all nodes by name.  Raise ActuationError."""
