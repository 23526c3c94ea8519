"""Changes to the `user_config` of a target's deployments that are left, and when each may be written.  Pure.

Beside replica counts a plan has clock levels and, where the application has a router, routing weights.  Both are keys
of a deployment's `user_config`, which Serve passes to running replicas without a restart.  A change that adds capacity
may be written at any time; one that removes capacity waits, as replica counts do (`deploy.controller.rollout`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from pydantic import JsonValue

from api.schemas.targets import SettingChange
from deploy.actuators.base import Replicas, Step, TargetSnapshot
from deploy.controller.rollout import missing_replicas, verify

CLOCK = "clock"


class Progress(IntEnum):
    """How far the replicas are on their way to the planned counts."""

    ANY = 0
    ALL_RUNNING = 1  # every planned replica
    EXACT = 2  # exactly the planned replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One key of one deployment's `user_config`."""

    part: str | None  # None: the router's deployment
    deployment: str
    key: str
    value: JsonValue
    current: str | None  # as a report shows it
    planned: str
    needs: Progress  # before it may be written
    is_intermediate: bool = False  # in force for a while on the way to the plan; never waited for
    blocks_decreases: bool = False  # no replica stops while this change is left
    is_written: bool = False  # written, and not yet in every replica

    @property
    def change(self) -> SettingChange:
        return SettingChange(
            gpu=self.part, deployment=self.deployment, key=self.key, now=self.current, planned=self.planned
        )

    def __str__(self) -> str:
        name = f"{self.key} of {self.part or self.deployment}"
        if self.is_written:
            return f"{name}: {self.planned}, not yet in every replica"
        return f"{name}: {self.current}, planned {self.planned}"


def clock_changes(
    planned: Mapping[str, float], *, deployments: Mapping[str, str], current: Mapping[str, float]
) -> tuple[ConfigChange, ...]:
    """Return the parts whose clock differs from the plan.  A clock is raised at once and lowered last."""
    return tuple(
        ConfigChange(
            part=part,
            deployment=deployments[part],
            key=CLOCK,
            value=clock,
            current=f"{current[part]:g}",
            planned=f"{clock:g}",
            needs=Progress.ANY if clock > current[part] else Progress.EXACT,
        )
        for part, clock in sorted(planned.items())
        if current[part] != clock
    )


def ready_changes(
    changes: Iterable[ConfigChange], *, wanted: Replicas, observation: TargetSnapshot
) -> tuple[ConfigChange, ...]:
    """Return the changes that may be written now; an intermediate one only where the final one may not."""
    reached = _progress(wanted=wanted, observation=observation)
    ready = [each for each in changes if each.needs <= reached and not each.is_written]
    final = {(each.deployment, each.key) for each in ready if not each.is_intermediate}
    return tuple(each for each in ready if not each.is_intermediate or (each.deployment, each.key) not in final)


def without_blocked_decreases(steps: tuple[Step, ...], *, changes: Iterable[ConfigChange]) -> tuple[Step, ...]:
    """Return the steps that need not wait for a configuration change."""
    if not any(each.blocks_decreases for each in changes):
        return steps
    return tuple(step for step in steps if step.is_increase)


def final_changes(changes: Iterable[ConfigChange]) -> tuple[ConfigChange, ...]:
    return tuple(each for each in changes if not each.is_intermediate)


def _progress(*, wanted: Replicas, observation: TargetSnapshot) -> Progress:
    if verify(wanted=wanted, observation=observation):
        return Progress.EXACT
    rising = any(observation.requested[part] < count for part, count in wanted.items())
    waiting = rising or missing_replicas(wanted=wanted, observation=observation)
    return Progress.ANY if waiting else Progress.ALL_RUNNING
