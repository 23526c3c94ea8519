"""The options of a class, each with its power and its loss; dominated options are dropped.

loss = weight * servers * expected busy share * (slowdown - 1) / slack        servers with their slack used up
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from power.arrays import Floats
from power.caps.power_model import Busy, Draw, busy_in, working
from power.caps.terms import Terms
from power.controls import FULL_CLOCK
from power.tree.hierarchy import ServerClass

ROUNDING = 1e-9  # relative


class Option(NamedTuple):
    token_clock: float
    prompt_clock: float
    draw: Draw
    slowdown: float
    loss: float


def slack_of(one: ServerClass, terms: Terms) -> float:
    """Return the slack of a class, as a share of the time of its requests."""
    return one.group.slo_slack if one.group.slo_slack is not None else terms.slack.of(one.group.level)


def options(one: ServerClass, period: int, *, terms: Terms, correlation: float) -> tuple[Option, ...]:
    """Return the options with both sides up: every level on which no work piles up; full clock always."""
    least, slack, busy = one.group.least_clock, slack_of(one, terms), busy_in(one.group, period)
    found = []
    for token, prompt in levels_of(one, terms):
        if min(token, prompt) < least:
            continue
        option, saturated = _option(one, busy, (token, prompt), terms=terms, correlation=correlation)
        too_slow = terms.within_slo and option.slowdown - 1 > slack * (1 + ROUNDING)
        if min(token, prompt) == FULL_CLOCK or not (saturated or too_slow):
            found.append(option)
    return not_beaten(found, sigmas=terms.sigmas)


def emergency_options(one: ServerClass, period: int, *, terms: Terms, correlation: float) -> tuple[Option, ...]:
    """Return the options with a side lost: work may queue, and the power brake is one of the levels."""
    busy, brake = busy_in(one.group, period), one.model.brake_clock
    levels = [*levels_of(one, terms), (brake, brake)]
    found = [_option(one, busy, pair, terms=terms, correlation=correlation)[0] for pair in levels]
    return not_beaten(found, sigmas=terms.sigmas)


def not_beaten(found: Sequence[Option], *, sigmas: float) -> tuple[Option, ...]:
    """Drop options that another can replace without raising any feed's peak or the loss; sort by loss."""
    ranked = sorted(found, key=lambda option: (option.loss, *option.draw))
    draws = np.array([option.draw for option in ranked])
    # [i, j]: option i replaces option j
    beats = np.triu(_raises_w(draws[:, None, :], draws[None, :, :], sigmas) <= ROUNDING * draws[None, :, 0], k=1)
    return tuple(option for option, column in zip(ranked, beats.T, strict=True) if not column.any())


def raises_no_peak(new: Draw, old: Draw, *, sigmas: float) -> bool:
    """Return whether replacing one draw by another raises no feed's peak."""
    return bool(_raises_w(np.array(new), np.array(old), sigmas) <= ROUNDING * old.mean_w)


def _raises_w(new: Floats, old: Floats, sigmas: float) -> Floats:
    """Return an upper bound of the rise: the root of a sum of squares grows no faster than any change of its terms."""
    more = new - old
    spread = np.hypot(np.maximum(more[..., 1], 0), np.maximum(more[..., 2], 0))
    raised: Floats = more[..., 0] + sigmas * spread
    return raised


def levels_of(one: ServerClass, terms: Terms) -> Iterator[tuple[float, float]]:
    if one.group.training is not None:
        yield from ((clock, clock) for clock in terms.training_clocks)
    else:
        yield from ((token, prompt) for token in terms.token_clocks for prompt in terms.prompt_clocks)


def _option(
    one: ServerClass, busy: Busy, clocks: tuple[float, float], *, terms: Terms, correlation: float
) -> tuple[Option, bool]:
    token, prompt = clocks
    at = working(one, busy, token_clock=token, prompt_clock=prompt, sigmas=terms.sigmas)
    loss = one.group.weight * one.group.count * busy.expected * (at.slowdown - 1) / slack_of(one, terms)
    return Option(token, prompt, at.draw(correlation), at.slowdown, loss), at.saturated
