"""Headroom of each feed: how many more servers it carries at a risk, and how many watts are stranded.

Every class under the feed grows by the same factor.  The headroom is `n` if the peaks of the feed and of every feed
above stay within their limits in every period.

The normal distribution is checked by sampling: how often a feed exceeds a limit with servers drawn one by one.
Forecast errors have one common factor, truncated so that busy shares stay from 0 to 1.  The phases of a class's servers
follow a multinomial distribution.  The interval is Wilson's (1927), 95 %.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fleet.documents import Frozen
from power.arrays import Floats
from power.caps.options import Terms, levels_of, slack_of
from power.caps.power_model import Busy, Working, busy_in, working
from power.tree.document import PowerTree
from power.tree.hierarchy import ServerClass
from power.tree.validation import nameplate_w

NORMAL_95 = 1.959964

MAX_SERVERS = 1_000_000
ROUNDING = 1e-9

MEAN, NOISE, ERROR_SQUARES, ERROR = range(4)


class Figure(Frozen):
    """A figure at the pessimistic end of correlation and power error, as assumed, and at the optimistic end."""

    low: float
    mid: float
    high: float


class Growth(Frozen):
    """The headroom of one feed, capped or at full clock."""

    servers: Figure = Field(description="That could be added; below 0 where those that are there are too many.")
    stranded_w: Figure = Field(description="Least over the periods of what the feeds on the way leave unused today.")
    limited_by: str | None = Field(description="The feed that reaches its limit first; absent: no feed has a limit.")
    period: int | None
    risk: Figure | None = Field(default=None, description="Sampled, with so many more: chance above the limit; 95 %.")


class FeedHeadroom(Frozen):
    """The headroom of a feed."""

    feed: str
    servers: int = Field(description="That hang on it now.")
    uncapped: Growth = Field(description="At full clock.")
    capped: Growth = Field(description="Each class as slow as its slack allows.")


@dataclass(frozen=True)
class _Sums:
    """Sums over the classes of every feed and period, for one choice of clocks."""

    sums: Floats  # [period, feed, MEAN .. ERROR]
    limits_w: Floats  # [period, feed]; infinite where not known

    def peak_w(
        self, grown: int, path: npt.NDArray[np.int64], factor: float, correlation: float, sigmas: float
    ) -> Floats:
        """Return [period, feed on the path], with everything under one feed scaled by a factor."""
        more = np.array([factor - 1, factor - 1, factor * factor - 1, factor - 1])
        sums = self.sums[:, path, :] + self.sums[:, grown, None, :] * more
        own = sums[..., NOISE] + (1 - correlation) * sums[..., ERROR_SQUARES]
        peaks: Floats = sums[..., MEAN] + sigmas * np.sqrt(np.maximum(0, own + correlation * sums[..., ERROR] ** 2))
        return peaks


def feed_headroom(tree: PowerTree, *, terms: Terms | None = None) -> tuple[FeedHeadroom, ...]:
    """Return the headroom of every feed with servers."""
    return _Headroom(tree, terms or Terms()).every()


def with_risk(
    tree: PowerTree, found: FeedHeadroom, *, samples: int, rng: np.random.Generator, terms: Terms | None = None
) -> FeedHeadroom:
    """Return the same with the sampled risk: that the limiting feed exceeds its limit with so many more servers."""
    headroom = _Headroom(tree, terms or Terms())
    return found.model_copy(
        update={
            "uncapped": headroom.sampled(found, found.uncapped, samples, rng, capped=False),
            "capped": headroom.sampled(found, found.capped, samples, rng, capped=True),
        }
    )


def effective_limits(tree: PowerTree, headrooms: Iterable[FeedHeadroom]) -> dict[str, float]:
    """Return the effective limit of every feed that limits anything, for a planner that counts servers by nameplate:
    the nameplates of the servers on the feed and of those that may be added, at the low end of the headroom.

    The effective limit exceeds the limit because peaks do not coincide and, with caps, because clocks may go down.
    """
    hierarchy, found = tree.hierarchy, dict[str, float]()
    for one in headrooms:
        if one.capped.limited_by is not None:
            classes = [hierarchy.classes[g] for g in hierarchy.below[one.feed]]
            nameplates_w = sum(nameplate_w(each.group, each.model) * each.group.count for each in classes)
            found[one.feed] = nameplates_w / one.servers * max(0, int(one.servers + one.capped.servers.low))
    return found


@dataclass(frozen=True)
class _Headroom:
    tree: PowerTree
    terms: Terms

    @cached_property
    def names(self) -> list[str]:
        return list(self.tree.hierarchy.feeds)

    def every(self) -> tuple[FeedHeadroom, ...]:
        hierarchy = self.tree.hierarchy
        full, slow = self._sums_of(capped=False), self._sums_of(capped=True)
        found = []
        for name, members in hierarchy.below.items():
            if members:
                servers = sum(hierarchy.classes[g].group.count for g in members)
                uncapped, capped = self._growth(full, name, servers), self._growth(slow, name, servers)
                found.append(FeedHeadroom(feed=name, servers=servers, uncapped=uncapped, capped=capped))
        return tuple(found)

    def sampled(
        self, found: FeedHeadroom, growth: Growth, samples: int, rng: np.random.Generator, *, capped: bool
    ) -> Growth:
        if growth.limited_by is None or growth.period is None:
            return growth
        hierarchy, period, factor = self.tree.hierarchy, growth.period, 1 + growth.servers.mid / found.servers
        inside = hierarchy.below[found.feed]
        counts = dict(zip(inside, _whole([hierarchy.classes[g].group.count * factor for g in inside]), strict=True))
        running = []
        for g in hierarchy.below[growth.limited_by]:
            one = hierarchy.classes[g]
            clocks = self._clocks(one, period) if capped else (1.0, 1.0)
            running.append(Running(one, busy_in(one.group, period), *clocks, counts.get(g, one.group.count)))
        watts = sampled_w(running, correlation=self.tree.correlation.mid, samples=samples, rng=rng)
        limit_w = hierarchy.feeds[growth.limited_by].may_draw_w(period)
        risk = chance_above(limit_w if limit_w is not None else inf, watts)
        return growth.model_copy(update={"risk": risk})

    def _growth(self, sums_: _Sums, name: str, servers: int) -> Growth:
        path = np.array([self.names.index(above) for above in self.tree.hierarchy.upwards(name)])
        correlation, error = self.tree.correlation, self.tree.power_error
        ends = ((correlation.high, 1 + error), (correlation.mid, 1.0), (correlation.low, 1 - error))
        added = [self._added(sums_, path, servers, *end) for end in ends]
        unused = [self._unused(sums_, path, *end) for end in ends]
        margins = self._margins(sums_, path, 1 + added[1] / servers + 1 / servers, *ends[1])
        period, at = np.unravel_index(int(margins.argmin()), margins.shape)
        known = np.isfinite(sums_.limits_w[:, path]).any()
        return Growth(
            servers=Figure(low=added[0], mid=added[1], high=added[2]),
            stranded_w=Figure(low=unused[0], mid=unused[1], high=unused[2]),
            limited_by=self.names[int(path[int(at)])] if known else None,
            period=int(period) if known else None,
        )

    def _added(self, sums_: _Sums, path: npt.NDArray[np.int64], servers: int, correlation: float, scale: float) -> int:
        """Return the largest number of added servers that fits, by bisection: every peak rises with the count."""
        low, high = -servers, MAX_SERVERS
        while high - low > 1:
            middle = (low + high) // 2
            margins = self._margins(sums_, path, 1 + middle / servers, correlation, scale)
            low, high = (middle, high) if margins.min() >= 0 else (low, middle)
        return low

    def _unused(self, sums_: _Sums, path: npt.NDArray[np.int64], correlation: float, scale: float) -> float:
        least = float(self._margins(sums_, path, 1.0, correlation, scale).min())
        return least if least < inf else 0.0

    def _margins(
        self, sums_: _Sums, path: npt.NDArray[np.int64], factor: float, correlation: float, scale: float
    ) -> Floats:
        peaks = sums_.peak_w(int(path[0]), path, factor, correlation, self.terms.sigmas)
        margins: Floats = sums_.limits_w[:, path] * (1 + ROUNDING) - scale * peaks
        return margins

    def _sums_of(self, *, capped: bool) -> _Sums:
        hierarchy, periods = self.tree.hierarchy, range(self.tree.periods)
        position = {name: at for at, name in enumerate(self.names)}
        sums = np.zeros((self.tree.periods, len(self.names), 4))
        for period in periods:
            known: dict[str, Working] = {}
            for one in hierarchy.classes:
                if one.group.name not in known:
                    known[one.group.name] = self._slowest(one, period) if capped else self._full(one, period)
                at = known[one.group.name]
                sums[period, [position[name] for name in one.feeds]] += (
                    at.mean_w, at.noise_w**2, at.error_w**2, at.error_w,
                )  # fmt: skip
        limits = [
            [inf if w is None else w for w in (hierarchy.feeds[name].may_draw_w(period) for name in self.names)]
            for period in periods
        ]
        return _Sums(sums, np.array(limits))

    def _full(self, one: ServerClass, period: int) -> Working:
        return working(one, busy_in(one.group, period), sigmas=self.terms.sigmas)

    def _slowest(self, one: ServerClass, period: int) -> Working:
        token, prompt = self._clocks(one, period)
        busy = busy_in(one.group, period)
        return working(one, busy, token_clock=token, prompt_clock=prompt, sigmas=self.terms.sigmas)

    def _clocks(self, one: ServerClass, period: int) -> tuple[float, float]:
        """Return the options within the slack with the lowest power at the risk, for the class alone."""
        busy, most = busy_in(one.group, period), 1 + slack_of(one, self.terms) + ROUNDING
        best, min_w = (1.0, 1.0), self._alone_w(self._full(one, period))
        for token, prompt in levels_of(one, self.terms):
            at = working(one, busy, token_clock=token, prompt_clock=prompt, sigmas=self.terms.sigmas)
            if at.slowdown <= most and not at.saturated and self._alone_w(at) < min_w:
                best, min_w = (token, prompt), self._alone_w(at)
        return best

    def _alone_w(self, at: Working) -> float:
        return at.mean_w + self.terms.sigmas * float(np.hypot(at.noise_w, at.error_w))


def _whole(shares: list[float]) -> list[int]:
    """Round to whole numbers with the same sum, each within one of its share."""
    sums = np.rint(np.cumsum(shares)).astype(int)
    return [int(count) for count in np.diff(sums, prepend=0)]


class Running(NamedTuple):
    one: ServerClass
    busy: Busy
    token_clock: float
    prompt_clock: float
    servers: int


def sampled_w(classes: Sequence[Running], *, correlation: float, samples: int, rng: np.random.Generator) -> Floats:
    """Return the total power of the classes at sampled moments of sampled days."""
    common = rng.standard_normal(samples)
    total = np.zeros(samples)
    for running in classes:
        own = rng.standard_normal(samples)
        error = running.busy.spread * (sqrt(correlation) * common + sqrt(1 - correlation) * own)
        total += _one_w(running, running.busy.median + error, rng)
    return total


def chance_above(limit_w: float, watts: Floats) -> Figure:
    """Return the share of the samples above a limit, with its interval."""
    n, share = len(watts), float((watts > limit_w).mean())
    z2 = NORMAL_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = NORMAL_95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Figure(low=max(0.0, middle - half), mid=share, high=min(1.0, middle + half))


def _one_w(running: Running, busy: Floats, rng: np.random.Generator) -> Floats:
    group, model, clocks = running.one.group, running.one.model, (running.token_clock, running.prompt_clock)
    if group.training is not None or group.load is None:
        steady_w = group.training.peak_w(clocks[0]) if group.training is not None else model.idle_w
        return np.full(len(busy), running.servers * steady_w)
    load = group.load
    token = (1 - load.prompt_share) * model.token_slowdown(clocks[0])
    prompt = load.prompt_share * model.prompt_slowdown(clocks[1])
    share = np.clip(busy, 0.0, 1 / (token + prompt))
    tokens = rng.binomial(running.servers, share * token)
    left = running.servers - tokens
    prompts = rng.binomial(left, np.clip(share * prompt / np.maximum(1e-12, 1 - share * token), 0, 1))
    token_w, prompt_w = model.token_w(clocks[0], load.together), model.prompt_w(clocks[1])
    watts = running.servers * model.idle_w + tokens * (token_w - model.idle_w) + prompts * (prompt_w - model.idle_w)
    return np.asarray(watts, dtype=np.float64)
