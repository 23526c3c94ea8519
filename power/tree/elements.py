"""The elements of a power tree: feeds with their limits by period, groups of servers with their load.

A feed is a power domain of the topology (`fleet.topology`) with budgets.  Its `limit_w` is the rating: with 2N that of
one side alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.errors import UnknownNameError
from fleet.topology import Site, Topology
from fleet.topology.elements import PowerDomain, Redundancy
from fleet.topology.hostlist import Name, NameSeries
from power.controls import Priority
from power.server_model import Clock, ServerModel, Training

MAX_SERIES = 8784  # hours of a year

Share = Annotated[float, Field(ge=0, le=1)]
BudgetW = Annotated[float, Field(ge=0, le=1e9)]


def _as_series(value: Any) -> Any:
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


# One wrong figure of thousands is enough to report.
Series = (Field(fail_fast=True), BeforeValidator(_as_series), Field(min_length=1, max_length=MAX_SERIES))
# One figure for always, or one per period.
Shares = Annotated[tuple[Share, ...], *Series]
BudgetsW = Annotated[tuple[BudgetW, ...], *Series]
QUANTILES: Mapping[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}


def at(series: Sequence[float], period: int) -> float:
    """Return the constant figure, or that of a period."""
    return series[period] if len(series) > 1 else series[0]


def length(series: Sequence[float] | None) -> int:
    """Return the number of periods of figures; 0: any."""
    return len(series) if series is not None and len(series) > 1 else 0


class Feed(PowerDomain):
    """A power domain with its budgets."""

    budget_w: BudgetsW | None = Field(
        default=None, description="What the feed may draw in all, by cooling or contract: a figure, or one per period."
    )
    ride_through_share: float = Field(
        default=1.0,
        ge=1,
        le=2,
        description="Of its limit: what one side of a 2N feed carries from the loss of the other until "
        "the caps for that case are in force.",
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @property
    def two_sided(self) -> bool:
        """Return whether the feed stays up when one side is lost."""
        return self.redundancy is Redundancy.TWO_SIDES

    def may_draw_w(self, period: int) -> float | None:
        """Return the limit with both sides; None if unknown."""
        return self._lower(None if self.limit_w is None else self.limit_w * self.ride_through_share, period)

    def may_draw_on_one_side_w(self, period: int) -> float | None:
        """Return the limit with a side lost, here or above."""
        return self._lower(self.limit_w, period)

    def _lower(self, carried_w: float | None, period: int) -> float | None:
        known = [w for w in (carried_w, None if self.budget_w is None else at(self.budget_w, period)) if w is not None]
        return min(known, default=None)

    def _violations(self) -> Iterator[Violation]:
        if self.ride_through_share > 1 and not self.two_sided:
            yield ("ride_through_share",), f"must be 1 on a feed with redundancy {self.redundancy}, or the feed 2N"
        if self.budget_w is None or self.limit_w is None:
            return
        max_w = self.limit_w * self.ride_through_share
        for period, budget_w in enumerate(self.budget_w):
            if budget_w > max_w:
                message = f"is above the rating, allowed: 0 to {max_w:,.10g} W, got {budget_w:,.10g}"
                yield ("budget_w", period), message


class GroupLoad(Frozen):
    """Busy share of a group at full clock, per period: the median and higher quantiles.

    The spread is that of a normal distribution through the median and the farthest quantile.
    """

    p50: Shares
    p90: Shares | None = None
    p95: Shares | None = None
    p99: Shares | None = None
    prompt_share: Share = Field(default=0.1, description="Of the busy time at full clock: reading prompts.")
    together: int = Field(default=1, ge=1, le=1024, description="Requests that a server writes tokens for at once.")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @property
    def periods(self) -> int:
        """Return the number of periods; 0: any."""
        return max([length(self.p50), *(length(series) for _, series in self._high())])

    def median(self, period: int) -> float:
        return at(self.p50, period)

    def spread(self, period: int) -> float:
        """Return the standard deviation of the busy share."""
        median = self.median(period)
        return max(((at(s, period) - median) / NormalDist().inv_cdf(QUANTILES[q]) for q, s in self._high()), default=0)

    def expected(self, period: int) -> float:
        """Return the mean of the busy share truncated at 0."""
        median, spread = self.median(period), self.spread(period)
        if spread == 0:
            return median
        law = NormalDist(median, spread)
        return median * (1 - law.cdf(0.0)) + spread * spread * law.pdf(0.0)

    def _high(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        for name in QUANTILES:
            if (series := getattr(self, name)) is not None:
                yield name, series

    def _violations(self) -> Iterator[Violation]:
        given: list[tuple[str, tuple[float, ...]]] = [("p50", self.p50), *self._high()]
        lengths = {length(series) for _, series in given} - {0}
        if len(lengths) > 1:
            yield (), f"must give all quantiles for as many periods, got {' and '.join(map(str, sorted(lengths)))}"
            return
        for (below, lower), (name, series) in pairwise(given):
            for period in range(max(1, *lengths) if lengths else 1):
                if at(series, period) < at(lower, period):
                    yield (name,), f"must be at least {below} in every period, is less in period {period}"
                    break


class ServerGroup(Frozen):
    """Equal servers that do one kind of work, on one feed or on each of a range of feeds."""

    name: Name
    power_domain: NameSeries
    server: ServerModel | str = Field(description="As described under servers, built in, or described here.")
    count: int = Field(ge=1, le=100_000, description="On each of its feeds.")
    priority: Literal["low", "high"]
    weight: float = Field(default=1.0, gt=0, le=1e6, description="Weight of its loss.")
    slo_slack: float | None = Field(
        default=None, gt=0, le=100, description="How much longer a request may take, as a share; absent: by priority."
    )
    load: GroupLoad | None = None
    training: Training | None = None
    least_clock: Clock = Field(
        default=0.3, description="No plan goes below it while both sides of its feeds are there."
    )

    @model_validator(mode="after")
    def _does_one_thing(self) -> Self:
        if (self.load is None) == (self.training is None):
            raise RuleError([((), "must have either load or training")])
        return self

    @property
    def level(self) -> Priority:
        return Priority[self.priority.upper()]


class Correlation(Frozen):
    """Correlation of the load forecast errors of any two groups: assumed value and range."""

    low: Share = 0.2
    mid: Share = 0.5
    high: Share = 0.8

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.low <= self.mid <= self.high:
            raise RuleError([((), f"must rise from low to high, got {self.low:g}, {self.mid:g}, {self.high:g}")])
        return self


def feeds_of(topology: Topology, *, site: str | None = None) -> tuple[Feed, ...]:
    """Return the power domains of a site, or of the only one."""
    return tuple(Feed(**domain.model_dump()) for domain in _site(topology, site).power)


def _site(topology: Topology, name: str | None) -> Site:
    if name is None and len(topology.sites) == 1:
        return topology.sites[0]
    for site in topology.sites:
        if site.name == name:
            return site
    raise UnknownNameError(kind="site", name=name or "", known=[site.name for site in topology.sites])
