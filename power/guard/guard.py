"""The step of the guard: telemetry in, commands out.  docs/explanation/power/guard.md has the states and transitions.

The guard wraps a policy.  It decides which setting applies: the policy's, the degraded or worst-case clocks, or the
brake.
"""

from functools import lru_cache
from math import inf
from typing import Generic, TypeVar

import numpy as np

from power.arrays import Ints
from power.controls import UNTOUCHED, Clocks, Setting
from power.guard.readback import Finding, Readback, events_of, no_commands
from power.guard.row import Row
from power.guard.settings import GuardSettings
from power.guard.states import NOT_CALM, Calm, Cause, Commands, Event, EventKind, GuardMode, GuardState
from power.guard.telemetry import BRAKE, NO_SERVERS, Telemetry
from power.guard.transitions import (
    TelemetryHealth,
    allowed_outage_s,
    assess,
    is_over,
    is_valid,
    last_reading_s,
    next_mode,
)
from power.policies.interface import Policy
from power.telemetry import Budget, RowObservation

StateT = TypeVar("StateT")

POLICY_MODES = frozenset((GuardMode.NORMAL, GuardMode.DEGRADED))  # the policy decides
LEVEL_STEPS = 200  # limits are rounded down to this share of the rating, so that small changes command few servers


class Guard(Generic[StateT]):
    """The safety loop of one row.  It has no state of its own: the caller passes the state."""

    def __init__(self, *, policy: Policy[StateT], row: Row, settings: GuardSettings) -> None:
        self.policy = policy
        self.row = row
        self.settings = settings
        self._readback = Readback(row=row, settings=settings, command_delay_s=policy.command_delay_s)
        self._clocks_of = lru_cache(maxsize=256)(row.clocks_of)  # read, never written
        self._stale_after_s, self._standing_w = settings.stale_after_s, settings.standing_limit_w
        self._level_within = lru_cache(maxsize=64)(self._sought_level)

    def start(self) -> GuardState[StateT]:
        """Return the state before the first reading and the first command."""
        return GuardState(
            mode=GuardMode.NORMAL,
            since_s=-inf,
            cause=None,
            policy=self.policy.start(),
            wanted=UNTOUCHED,
            setting=UNTOUCHED,
            limit_w=self.settings.standing_limit_w,
            had_budget=False,
            commands=no_commands(len(self.row)),
            has_readback=False,
            has_commanded=False,
            started_s=inf,
            engaged_s=-inf,
            released_s=-inf,
            read_s=-inf,
            good_readings=0,
            brakes=0,
        )

    def step(self, state: GuardState[StateT], telemetry: Telemetry) -> tuple[GuardState[StateT], Commands]:
        """Take one step.  Call it every period, and when a reading arrives."""
        reading, budget_w = telemetry.reading, self._short_path_budget_w(state, telemetry)
        if reading is None or budget_w is None:
            return self.full_step(state, telemetry)
        observed = RowObservation(now_s=telemetry.now_s, reading=reading, counts=telemetry.counts, budget_w=budget_w)
        return self._policy_step(state, observed)

    def full_step(self, state: GuardState[StateT], telemetry: Telemetry) -> tuple[GuardState[StateT], Commands]:
        """Take the whole step; `step` takes a shorter path with the same result where only the reading is new."""
        health = assess(telemetry, self.settings, last_limit_w=state.limit_w)
        first = state.started_s == inf
        if first or state.limit_w != health.limit_w or state.had_budget is not (state.had_budget or health.planned):
            state = state._replace(
                limit_w=health.limit_w,
                had_budget=state.had_budget or health.planned,
                started_s=min(state.started_s, health.now_s),
            )
        finding, events = self._checked(state, telemetry) if state.has_commanded else (None, ())
        if finding is not None:
            state = state._replace(commands=finding.commands)
        state, changes = self._changed(state, telemetry, health)
        if state.mode in POLICY_MODES:
            state = self._decided(state, telemetry, health)
        return self._commanded(state, health, finding, (*events, *changes))

    def calm(self, state: GuardState[StateT], telemetry: Telemetry) -> Calm:
        """Return until when, and below which readings, further steps would change nothing.

        This holds while readings are fresh and read-backs, the budget and coming limits stay as in this telemetry.
        """
        budget, now_s = telemetry.budget, telemetry.now_s
        if state.mode is not GuardMode.NORMAL or not state.has_commanded or budget is None:
            return NOT_CALM
        if state.commands.open and telemetry.servers is not None:
            return NOT_CALM
        if not is_valid(budget, self.settings, now_s=now_s):
            return NOT_CALM
        calm_w = self.policy.calm_below_w(state.policy, self._left_w(state, telemetry, budget))
        if calm_w == -inf:
            return NOT_CALM
        lead_at_s = budget.expires_at_s - self.settings.lead_s
        return Calm(min(calm_w, budget.limit_w), lead_at_s if now_s < lead_at_s else budget.expires_at_s)

    def _short_path_budget_w(self, state: GuardState[StateT], telemetry: Telemetry) -> float | None:
        """Return the policy's budget if only the reading can have changed; None: take the full step."""
        now_s, reading, _, servers, budget, _ = telemetry
        if state.mode is not GuardMode.NORMAL or not state.has_commanded or reading is None or budget is None:
            return None
        limit_w = state.limit_w
        has_reading = 0 <= reading.row_w <= limit_w and 0 <= now_s - reading.at_s <= self._stale_after_s
        planned = state.had_budget and budget.limit_w == limit_w and now_s < budget.expires_at_s
        if not has_reading or not planned or state.commands.reserve_w > self.settings.max_reserved * limit_w:
            return None
        if servers is not None and not (
            state.has_readback and self._readback.check(state.commands, servers, now_s=now_s) is None
        ):
            return None
        return self._left_w(state, telemetry, budget)

    def _left_w(self, state: GuardState[StateT], telemetry: Telemetry, budget: Budget) -> float:
        """Return the part of a valid budget for the policy: the reserve for unresponsive servers is subtracted."""
        limit_w = min(budget.limit_w, telemetry.coming_w)
        if budget.expires_at_s <= telemetry.now_s + self.settings.lead_s:
            limit_w = min(limit_w, self._standing_w)
        return max(0.0, limit_w - state.commands.reserve_w)

    def _policy_step(self, state: GuardState[StateT], observed: RowObservation) -> tuple[GuardState[StateT], Commands]:
        """Apply the policy's next setting; nothing else has changed."""
        policy, wanted = self.policy.decide(state.policy, observed)
        commands, command = state.commands, NO_SERVERS
        if wanted is not state.setting and wanted.clocks != state.setting.clocks:
            commands, command = self._readback.command_clocks(
                commands, self._clocks_of(wanted.clocks), now_s=observed.now_s
            )
        if not (policy is state.policy and wanted is state.setting is state.wanted):
            state = state._replace(policy=policy, wanted=wanted, setting=wanted, commands=commands)
        return state, Commands(GuardMode.NORMAL, wanted, command)

    def _checked(self, state: GuardState[StateT], telemetry: Telemetry) -> tuple[Finding | None, tuple[Event, ...]]:
        if telemetry.servers is None:
            return None, ()
        finding = self._readback.check(state.commands, telemetry.servers, now_s=telemetry.now_s)
        return finding, () if finding is None else events_of(finding, mode=state.mode, now_s=telemetry.now_s)

    def _changed(
        self, state: GuardState[StateT], telemetry: Telemetry, health: TelemetryHealth
    ) -> tuple[GuardState[StateT], tuple[Event, ...]]:
        """Return the state after the transitions of this step."""
        if not state.has_readback and telemetry.servers is not None:
            state = state._replace(has_readback=True)
            if state.mode is not GuardMode.BRAKED and (telemetry.servers.held[BRAKE] > 0).any():
                return self._entered(state, GuardMode.BRAKED, Cause.FOUND_BRAKED, health)
        state = _counted(state, health)
        if state.mode is GuardMode.BRAKED and state.cause is Cause.TELEMETRY_LOST_TOO_LONG and is_over(state, health):
            # A reading a step before the brake would have been the cause; clocks alone no longer release this brake.
            state = state._replace(cause=Cause.OVER_BUDGET)
        change = next_mode(
            state, health, self.settings, max_outage_s=lambda: self._max_outage_s(state, telemetry, health)
        )
        return (state, ()) if change is None else self._entered(state, *change, health)

    def _max_outage_s(self, state: GuardState[StateT], telemetry: Telemetry, health: TelemetryHealth) -> float:
        """Return how long telemetry may be lost with the highest clocks that may be in force on the servers."""
        if state.mode is GuardMode.BRAKED and telemetry.servers is None:
            return 0.0  # the clocks under the brake must be read back
        held = state.commands.expected.copy()
        held[:BRAKE] = 1.0  # no clocks were commanded yet
        if state.has_commanded:
            held[:BRAKE] = self._clocks_of(state.wanted.clocks.slower(self._worst_case_clocks(state, health)))
        held[BRAKE] = 0.0
        if telemetry.servers is not None:
            shown = telemetry.servers.held[:BRAKE]
            commands = held[:BRAKE] if state.has_commanded else shown
            held[:BRAKE] = np.where(np.isnan(shown), 1.0, np.maximum(commands, shown))
        held[:BRAKE, state.commands.silent] = 1.0
        worst_w = float(self.row.worst_each_w(held).sum())
        allowed_s = allowed_outage_s(worst_w, health.limit_w, self.settings)
        if not state.has_commanded or state.mode is GuardMode.TELEMETRY_LOST or worst_w <= health.limit_w:
            return allowed_s
        # Lower clocks have not been tried yet: they are, where the brake would still be in time one step after them.
        try_s = self.policy.command_delay_s + self.settings.period_s + self.settings.brake_s
        return max(allowed_s, self.settings.trip.seconds_to_trip(worst_w / health.limit_w) - try_s)

    def _entered(
        self, state: GuardState[StateT], mode: GuardMode, cause: Cause, health: TelemetryHealth
    ) -> tuple[GuardState[StateT], tuple[Event, ...]]:
        now_s = health.now_s
        if mode is GuardMode.BRAKED:
            state = state._replace(engaged_s=now_s, brakes=state.brakes + (cause is not Cause.FOUND_BRAKED))
        elif state.mode is GuardMode.BRAKED:
            state = state._replace(released_s=now_s)
        if mode is GuardMode.TELEMETRY_LOST:
            state = state._replace(good_readings=0, read_s=last_reading_s(state, health, self.settings))
        return state._replace(mode=mode, cause=cause, since_s=now_s), (Event(EventKind.MODE, now_s, mode, cause),)

    def _decided(self, state: GuardState[StateT], telemetry: Telemetry, health: TelemetryHealth) -> GuardState[StateT]:
        if health.reading is None or not (health.fresh or state.has_commanded):
            return state
        budget_w = max(
            0.0, health.policy_limit_w - state.commands.reserve_w
        )  # the other servers make up for the reserve
        observed = RowObservation(
            now_s=health.now_s, reading=health.reading, counts=telemetry.counts, budget_w=budget_w
        )
        policy, wanted = self.policy.decide(state.policy, observed)
        if policy is state.policy and wanted is state.wanted:
            return state
        return state._replace(policy=policy, wanted=wanted)

    def _setting(self, state: GuardState[StateT], health: TelemetryHealth) -> Setting:
        wanted = state.wanted
        if state.mode is GuardMode.NORMAL and (state.has_commanded or health.fresh):
            return wanted
        if state.mode is GuardMode.NORMAL:
            return self._held_back(wanted, health)
        if state.mode is GuardMode.DEGRADED:
            return wanted._replace(clocks=wanted.clocks.slower(self.settings.degraded_clocks))
        held_back = self._held_back(wanted, health)
        return held_back._replace(clocks=wanted.clocks.slower(self._worst_case_clocks(state, health)))

    def _held_back(self, wanted: Setting, health: TelemetryHealth) -> Setting:
        """Lower the admission limits while telemetry is lost."""
        return wanted._replace(
            low_limit_w=min(wanted.low_limit_w, self.settings.telemetry_lost_low_limit * health.limit_w),
            high_limit_w=min(wanted.high_limit_w, self.settings.telemetry_lost_high_limit * health.limit_w),
        )

    def _worst_case_clocks(self, state: GuardState[StateT], health: TelemetryHealth) -> Clocks:
        """Return the highest clocks whose worst case fits, at most the degraded clocks."""
        limit_w = max(
            0.0, health.policy_limit_w - state.commands.reserve_w
        )  # the row must be low enough for a coming limit
        step_w = self.settings.rating_w / LEVEL_STEPS
        return self._level_within(step_w * (limit_w // step_w))

    def _sought_level(self, limit_w: float) -> Clocks:
        level = self.row.level_within(limit_w, lowest=self.settings.lowest_clock)
        return level.slower(self.settings.degraded_clocks)

    def _commanded(
        self,
        state: GuardState[StateT],
        health: TelemetryHealth,
        finding: Finding | None,
        events: tuple[Event, ...],
    ) -> tuple[GuardState[StateT], Commands]:
        """Return the commands that bring servers from the commanded to the new setting."""
        setting, commands, now_s = self._setting(state, health), state.commands, health.now_s
        braked = state.mode is GuardMode.BRAKED
        if finding is None:
            command = switch = NO_SERVERS
        else:
            command, switch = finding.late_clocks, finding.late_brake
        first = not state.has_commanded and (state.mode is not GuardMode.NORMAL or health.fresh)
        if first:
            state = state._replace(has_commanded=True)
        if first or (state.has_commanded and setting.clocks != state.setting.clocks):
            commands, changed = self._readback.command_clocks(commands, self._clocks_of(setting.clocks), now_s=now_s)
            command = _both(command, changed)
        if commands.braked is not braked:
            commands, switch = self._readback.command_brake(commands, on=braked, now_s=now_s), self.row.all
        if setting is not state.setting or commands is not state.commands:
            state = state._replace(setting=setting, commands=commands)
        brake, release = (switch, NO_SERVERS) if braked else (NO_SERVERS, switch)
        return state, Commands(state.mode, setting, command, brake, release, events)


def _counted(state: GuardState[StateT], health: TelemetryHealth) -> GuardState[StateT]:
    """Count fresh readings in a row while telemetry is lost."""
    if state.mode is not GuardMode.TELEMETRY_LOST:
        return state
    reading = health.reading
    good = state.good_readings if health.fresh else 0
    if reading is None or reading.at_s <= state.read_s:
        return state if good == state.good_readings else state._replace(good_readings=good)
    return state._replace(read_s=reading.at_s, good_readings=good + health.fresh)


def _both(some: Ints, others: Ints) -> Ints:
    if not some.size or not others.size:
        return others if others.size else some
    return np.union1d(some, others)
