"""Which state follows: the table of docs/power/guard.md, row by row."""

from collections.abc import Callable
from math import inf
from typing import Any

from power.guard.settings import GuardSettings
from power.guard.states import Cause, GuardState, Mode
from power.guard.telemetry_health import Sight

Change = tuple[Mode, Cause]


def next_mode(
    state: GuardState[Any], sight: Sight, settings: GuardSettings, *, blind_most_s: Callable[[], float]
) -> Change | None:
    """The change that this look demands, if any.  `blind_most_s`: how long the row may stay unseen as it is."""
    if state.mode is Mode.BRAKED:
        return _from_braked(state, sight, settings, blind_most_s)
    if is_over(state, sight):
        return Mode.BRAKED, Cause.OVER_BUDGET
    if not sight.fresh:
        return _out_of_sight(state, sight, settings, blind_most_s)
    if state.mode is Mode.RELEASING and not _has_held(state, sight, settings):
        return None
    if state.mode is Mode.BLIND and state.good_readings < settings.return_readings:
        return None
    mode, cause = _in_sight(state, sight, settings)
    return None if mode is state.mode else (mode, cause)


def is_over(state: GuardState[Any], sight: Sight) -> bool:
    """A reading above the budget counts however late it comes, unless it tells of before the last release."""
    return sight.above_at_s > state.released_s


def _from_braked(
    state: GuardState[Any], sight: Sight, settings: GuardSettings, blind_most_s: Callable[[], float]
) -> Change | None:
    """Only a reading that was taken under the brake, fresh and well below the budget, lets it go; or, where blindness
    alone was why, clocks that have shown at which no load can exceed the budget."""
    reading = sight.reading
    bites_s = state.engaged_s + settings.brake_s
    if sight.now_s < bites_s + settings.brake_hold_s:
        return None
    if not sight.fresh or reading is None:
        shown = state.cause is Cause.BLIND_TOO_LONG and blind_most_s() == inf
        return (Mode.BLIND, Cause.BRAKE_RELEASED) if shown else None
    if reading.at_s <= bites_s or reading.row_w >= settings.release_share * sight.limit_w:
        return None
    if settings.release_hold_s > 0:
        return Mode.RELEASING, Cause.BRAKE_RELEASED
    return _in_sight(state, sight, settings)


def last_seen_s(state: GuardState[Any], sight: Sight, settings: GuardSettings) -> float:
    """When the row was in sight, at the least; where no reading is left to say so, sight was there a step ago."""
    if sight.reading is not None:
        return max(sight.reading.at_s, state.released_s)
    return max(state.started_s, sight.now_s - settings.stale_after_s)


def _out_of_sight(
    state: GuardState[Any], sight: Sight, settings: GuardSettings, blind_most_s: Callable[[], float]
) -> Change | None:
    seen_s = state.read_s if state.mode is Mode.BLIND else last_seen_s(state, sight, settings)
    if sight.now_s - seen_s >= blind_most_s():
        return Mode.BRAKED, Cause.BLIND_TOO_LONG
    if state.mode is Mode.BLIND or (not state.spoken and sight.now_s - state.started_s < settings.stale_after_s):
        return None  # one that has just started has told nobody anything, and waits for the meter's first word
    return Mode.BLIND, Cause.NO_TELEMETRY if sight.reading is None else Cause.STALE_TELEMETRY


def _has_held(state: GuardState[Any], sight: Sight, settings: GuardSettings) -> bool:
    """Long enough off the brake, and seen there."""
    reading = sight.reading
    return (
        sight.now_s >= state.released_s + settings.release_hold_s
        and reading is not None
        and reading.at_s > state.released_s
    )


def _in_sight(state: GuardState[Any], sight: Sight, settings: GuardSettings) -> Change:
    if not sight.planned:
        return Mode.CAUTIOUS, Cause.BUDGET_EXPIRED if state.had_budget else Cause.NO_BUDGET
    if state.told.reserve_w > settings.most_reserved * sight.limit_w:
        return Mode.CAUTIOUS, Cause.ACTUATION_IGNORED
    return Mode.NORMAL, Cause.RECOVERED
