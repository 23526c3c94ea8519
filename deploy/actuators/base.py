"""The actuator protocol: read one target, write one change.

A target consists of parts.  A part is scaled as a whole: a deployment, a worker group or a run.  Its key in the
target's registration names the replicas it takes by GPU type, role, option and clock
(`deploy.controller.plan_reader`), so prefill and decode, or two options on one GPU type, are two parts.  All
counts are keyed by part.

An actuator keeps no state.  Choosing steps and comparing counts are the same for all kinds
(`deploy.controller.rollout`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from deploy.common.errors import ActuationError

Replicas = Mapping[str, int]  # part -> replicas
UserConfig = Mapping[str, JsonValue]


class Bounds(NamedTuple):
    """The counts that a target allows for a part."""

    min_replicas: int
    max_replicas: int
    source: str  # the field that sets them, for error messages


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """One deployment of a target whose configuration can be written."""

    requested: int
    user_config: UserConfig
    healthy: bool = False  # every requested replica runs with this user_config
    replicas: Mapping[str, str] = field(default_factory=dict)  # id -> state


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """How far the replicas of a part are that get ready to stop."""

    keep: int  # replicas that are not marked to stop
    marked: int
    waits_for: str | None = None  # why the marked replicas may not stop yet; None: they may


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSnapshot:
    """A target as it was read.  `requested` and `running` have the same parts."""

    requested: Replicas
    running: Replicas  # replicas that serve requests
    bounds: Mapping[str, Bounds] = field(default_factory=dict)  # of parts that have some
    note: str | None = None  # a problem that the target reports; a plan is not verified while there is one
    warning: str | None = None  # a shortcoming that leaves the counts right
    drains: Mapping[str, DrainState] = field(default_factory=dict)  # of parts whose replicas are drained before a stop
    deployments: Mapping[str, DeploymentState] = field(default_factory=dict)  # by name; none where nothing is written

    def deployment(self, name: str) -> DeploymentState:
        """Raise ActuationError where the target has no such deployment."""
        if (found := self.deployments.get(name)) is None:
            listed = ", ".join(sorted(self.deployments)) or "none"
            raise ActuationError(f"the target has no deployment {name!r}; it has: {listed}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Request another number of replicas of one part.  The count is absolute, so a repeated step changes nothing."""

    part: str
    replicas_before: int
    replicas_after: int

    @property
    def size(self) -> int:
        return abs(self.replicas_after - self.replicas_before)

    @property
    def is_increase(self) -> bool:
        return self.replicas_after > self.replicas_before


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWrite:
    """Set one key of a deployment's `user_config`, or remove the key where `value` is None."""

    deployment: str
    key: str
    value: JsonValue
    expected: UserConfig | None = None  # write only while the user_config is still this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Mark all replicas of a part but `keep` to stop, and no other.  A repeated drain changes nothing.

    Only for parts with a `DrainState`.
    """

    part: str
    keep: int


Change = Step | ConfigWrite | Drain


class Actuator(Protocol):
    """Drives one target.  Both methods raise ActuationError."""

    async def observe(self) -> TargetSnapshot:
        """Read the target."""

    async def apply(self, change: Change) -> None:
        """Write one change without waiting for its effect."""
