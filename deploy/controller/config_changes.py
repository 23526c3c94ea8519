"""What deployments of a target are still to be told in their `user_config`, and when each may be.  Pure.

Beside counts of replicas a plan wants clock levels and, where the application has a router, its weights.  Both are keys
of a deployment's `user_config`, which Serve hands to running replicas without restarting any.  What gives something may
be told at any time; what takes something waits, as counts do (`deploy.controller.rollout`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from pydantic import JsonValue

from api.schemas.targets import SettingChange
from deploy.actuators.base import Observation, Replicas, Step
from deploy.controller.rollout import is_settled, missing_replicas

CLOCK = "clock"


class When(IntEnum):
    """How far replicas must be."""

    ANY_TIME = 0
    ALL_RUN = 1  # all that are wanted
    NO_OTHERS = 2  # exactly those that are wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """One key of one deployment's `user_config`."""

    part: str | None  # what it is for: a GPU type; None: the router
    deployment: str
    key: str
    value: JsonValue
    now: str | None  # as people read it
    planned: str
    when: When
    on_the_way: bool = False  # to what is planned: told for a while, and never waited for
    holds_losses: bool = False  # while it is left, no replica is given up
    asked: bool = False  # written already, and not heard by all replicas yet

    @property
    def change(self) -> SettingChange:
        """As a report says it."""
        return SettingChange(
            gpu=self.part, deployment=self.deployment, key=self.key, now=self.now, planned=self.planned
        )

    def __str__(self) -> str:
        """As a message says it."""
        whose = f"{self.key} of {self.part or self.deployment}"
        return (
            f"{whose}: {self.planned}, not heard by all"
            if self.asked
            else f"{whose}: {self.now}, planned {self.planned}"
        )


def clocks_left(
    planned: Mapping[str, float], *, deployments: Mapping[str, str], told: Mapping[str, float]
) -> tuple[Telling, ...]:
    """By part; those that are as planned are left out.  Speed is given at once, and taken last."""
    return tuple(
        Telling(
            part=part,
            deployment=deployments[part],
            key=CLOCK,
            value=clock,
            now=f"{told[part]:g}",
            planned=f"{clock:g}",
            when=When.ANY_TIME if clock > told[part] else When.NO_OTHERS,
        )
        for part, clock in sorted(planned.items())
        if told[part] != clock
    )


def due(tellings: Iterable[Telling], *, wanted: Replicas, observation: Observation) -> tuple[Telling, ...]:
    """Those that may be told now; what is on the way only where the goal may not be told yet."""
    reached = _reached(wanted=wanted, observation=observation)
    found = [each for each in tellings if each.when <= reached and not each.asked]
    reachable = {(each.deployment, each.key) for each in found if not each.on_the_way}
    return tuple(each for each in found if not each.on_the_way or (each.deployment, each.key) not in reachable)


def without_losses(steps: tuple[Step, ...], *, tellings: Iterable[Telling]) -> tuple[Step, ...]:
    """The steps that need not wait for anything to be told."""
    if not any(each.holds_losses for each in tellings):
        return steps
    return tuple(step for step in steps if step.rises)


def goals(tellings: Iterable[Telling]) -> tuple[Telling, ...]:
    """Without what is told on the way only."""
    return tuple(each for each in tellings if not each.on_the_way)


def _reached(*, wanted: Replicas, observation: Observation) -> When:
    if is_settled(wanted=wanted, observation=observation):
        return When.NO_OTHERS
    rising = any(observation.asked[part] < count for part, count in wanted.items())
    waiting = rising or missing_replicas(wanted=wanted, observation=observation)
    return When.ANY_TIME if waiting else When.ALL_RUN
