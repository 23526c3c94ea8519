"""The power of a class of equal servers at a pair of clocks, as a random variable (docs/explanation/power/caps.md, 2).

A server writes tokens with probability `b (1-q) s_token`, reads a prompt with probability `b q s_prompt`, and is idle
otherwise.  `b` is the busy share at full clock.  Its forecast error is partly shared with other classes.
"""

from collections.abc import Iterable
from math import hypot, sqrt
from typing import NamedTuple

from power.controls import FULL_CLOCK
from power.tree.elements import GroupLoad, ServerGroup
from power.tree.hierarchy import ServerClass

ROUNDING = 1e-12
IDLE = GroupLoad(p50=(0.0,))


class Draw(NamedTuple):
    """Power of a class in watts: the mean and the two parts of its spread."""

    mean_w: float
    own_w: float  # standard deviation of the part that is independent of all other classes
    common_w: float  # standard deviation of the part common to all classes


class Working(NamedTuple):
    mean_w: float
    noise_w: float  # standard deviation from moment to moment, each server on its own
    error_w: float  # standard deviation of the forecast
    busy_share: float  # at these clocks, at most 1
    slowdown: float  # of a request
    saturated: bool = False  # more work comes in than is done

    def draw(self, correlation: float) -> Draw:
        """Return the forecast with this share of common error."""
        own_w = hypot(self.noise_w, sqrt(1 - correlation) * self.error_w)
        return Draw(self.mean_w, own_w, sqrt(correlation) * self.error_w)


class Busy(NamedTuple):
    """Forecast share of a period in which a group's servers are busy at full clock."""

    median: float
    spread: float  # standard deviation
    expected: float


def busy_in(group: ServerGroup, period: int) -> Busy:
    """Return the busy share of a group; a training group is always busy."""
    if group.load is None:
        return Busy(1.0, 0.0, 1.0)
    return Busy(group.load.median(period), group.load.spread(period), group.load.expected(period))


def peak_w(draws: Iterable[Draw], *, sigmas: float) -> float:
    """Return the power at the risk: the mean plus `sigmas` standard deviations."""
    mean, own, common = 0.0, 0.0, 0.0
    for draw in draws:
        mean += draw.mean_w
        own += draw.own_w * draw.own_w
        common += draw.common_w
    return mean + sigmas * sqrt(own + common * common)


def working(
    one: ServerClass, busy: Busy, *, token_clock: float = FULL_CLOCK, prompt_clock: float = FULL_CLOCK, sigmas: float
) -> Working:
    """Return the power at these clocks; a training class uses the token clock only."""
    group = one.group
    if group.training is not None:
        training = group.training
        return Working(group.count * training.peak_w(token_clock), 0.0, 0.0, 1.0, training.slowdown(token_clock))
    return _serving(one, group.load or IDLE, busy, (token_clock, prompt_clock), sigmas)


def _serving(one: ServerClass, load: GroupLoad, forecast: Busy, clocks: tuple[float, float], sigmas: float) -> Working:
    model, count = one.model, one.group.count
    token = (1 - load.prompt_share) * model.token_slowdown(clocks[0])
    prompt = load.prompt_share * model.prompt_slowdown(clocks[1])
    slowdown = token + prompt
    busy = min(forecast.median, 1 / slowdown)
    idle_w = model.idle_w
    above_token, above_prompt = model.token_w(clocks[0], load.together) - idle_w, model.prompt_w(clocks[1]) - idle_w
    per_busy = token * above_token + prompt * above_prompt
    variance = busy * (token * above_token**2 + prompt * above_prompt**2) - (busy * per_busy) ** 2
    # A server cannot be busy for more than all of the time: at the quantile of the plan the forecast stops there.
    error = min(forecast.spread, (1 / slowdown - busy) / sigmas) if sigmas > 0 else forecast.spread
    return Working(
        mean_w=count * (idle_w + busy * per_busy),
        noise_w=sqrt(count * max(0.0, variance)),
        error_w=count * error * per_busy,
        busy_share=busy * slowdown,
        slowdown=slowdown,
        saturated=forecast.median * slowdown > 1 + ROUNDING,
    )
