"""The terms of a plan, and the options of a class with their power and loss; dominated options are dropped.

loss = weight * servers * expected busy share * (slowdown - 1) / slack        servers with their slack used up
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from power.arrays import Floats
from power.caps.power_model import Busy, Draw, busy_in, working
from power.controls import FULL_CLOCK
from power.policies.frontier import Slack
from power.server_model import Clock
from power.tree.hierarchy import ServerClass

MIN_RISK = 1e-9
ROUNDING = 1e-9  # relative

Risk = Annotated[float, Field(ge=MIN_RISK, le=0.5)]
Levels = Annotated[tuple[Clock, ...], Field(min_length=1, max_length=64)]


class Terms(Frozen):
    """The risk of a cap plan, the clocks to choose from, and the slack of each priority."""

    risk: Risk = Field(default=1e-3, description="Chance that a feed's power is above its limit at a moment.")
    token_clocks: Levels = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)
    prompt_clocks: Levels = (1.0, 0.97, 0.93, 0.86, 0.79, 0.7, 0.6)
    training_clocks: Levels = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
    slack: Slack = Slack()
    within_slo: bool = Field(
        default=False, description="Never slow a class by more than its slack, even to keep a feed within its limit."
    )
    lost_share: float = Field(default=1e-3, ge=0, le=1, description="Of the time, on one side of a 2N feed.")

    @model_validator(mode="after")
    def _start_at_full_clock(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @cached_property
    def sigmas(self) -> float:
        """Return the number of standard deviations above the mean that a normal distribution exceeds with this risk."""
        return NormalDist().inv_cdf(1 - self.risk)

    def _violations(self) -> Iterator[Violation]:
        for field in ("token_clocks", "prompt_clocks", "training_clocks"):
            levels: tuple[float, ...] = getattr(self, field)
            if levels[0] != 1 or any(low >= high for high, low in pairwise(levels)):
                yield (field,), "must start at 1 and fall"


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
    return undominated(found, sigmas=terms.sigmas)


def emergency_options(one: ServerClass, period: int, *, terms: Terms, correlation: float) -> tuple[Option, ...]:
    """Return the options with a side lost: work may queue, and the power brake is one of the levels."""
    busy, brake = busy_in(one.group, period), one.model.brake_clock
    levels = [*levels_of(one, terms), (brake, brake)]
    found = [_option(one, busy, pair, terms=terms, correlation=correlation)[0] for pair in levels]
    return undominated(found, sigmas=terms.sigmas)


def undominated(found: Sequence[Option], *, sigmas: float) -> tuple[Option, ...]:
    """Drop options that another can replace without raising any feed's peak or the loss; sort by loss."""
    ranked = sorted(found, key=lambda option: (option.loss, *option.draw))
    draws = np.array([option.draw for option in ranked])
    # [i, j]: option i replaces option j
    dominates = np.triu(_raises_w(draws[:, None, :], draws[None, :, :], sigmas) <= ROUNDING * draws[None, :, 0], k=1)
    return tuple(option for option, column in zip(ranked, dominates.T, strict=True) if not column.any())


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
