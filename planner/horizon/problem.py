"""A mix problem over time: the same options, a rate per period, and the time and cost of changes between periods.

Symbols and units are those of docs/explanation/planner/horizon.md, section 1.  The base problem has the options, unit
costs and limits; its rates are replaced per period.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Self

from fleet.offers import Market
from planner.problem import Limit, Load, MixProblem

MAX_PERIODS = 1000
ROUNDING_H = 1e-9  # a warm-up of exactly one period is one period, despite rounding

Rates = tuple[tuple[float, ...], ...]  # [load][bucket] in requests/s


@dataclass(frozen=True)
class HorizonProblem:
    """The replicas to run in each of a row of equal periods."""

    base: MixProblem
    rates_rps: tuple[Rates, ...]  # [period][load][bucket]
    period_h: float
    markets: tuple[Market, ...]  # per supply; reserved units are paid for the whole horizon, others by the period
    warmup_h: tuple[float, ...]  # per option, from hiring to serving
    start_usd: float = 0.0  # per replica started
    stop_usd: float = 0.0  # per replica stopped
    initial: tuple[int, ...] | None = None  # replicas per option before the first period; None: the periods repeat
    stock: tuple[tuple[int | None, ...], ...] | None = None  # [period][supply] in units; None: each supply's own
    limits: tuple[tuple[Limit, ...], ...] | None = None  # [period]; None: those of the base in every period

    def __post_init__(self) -> None:
        for violation in self._violations():
            raise ValueError(violation)

    @classmethod
    def scaled(cls, base: MixProblem, factors: Sequence[Sequence[float]], **more: object) -> Self:
        """Periods in which each load's rates are the base's times a factor: `factors[period][load]`."""
        rates = tuple(
            tuple(tuple(factor * rate for rate in load.rate_rps) for factor, load in zip(row, base.loads, strict=True))
            for row in factors
        )
        return cls(base=base, rates_rps=rates, **more)  # type: ignore[arg-type]

    @property
    def periods(self) -> int:
        return len(self.rates_rps)

    @property
    def hours(self) -> float:
        return self.periods * self.period_h

    @cached_property
    def warmup_periods(self) -> tuple[int, ...]:
        """Per option, whole periods from a replica's start until it serves."""
        return tuple(max(0, ceil(hours / self.period_h - ROUNDING_H)) for hours in self.warmup_h)

    def reserved(self, supply: int) -> bool:
        return self.markets[supply] is Market.RESERVED

    def available(self, period: int, supply: int) -> int | None:
        """Units available in a period; None: no limit."""
        return self.base.supplies[supply].available if self.stock is None else self.stock[period][supply]

    def limits_of(self, period: int) -> tuple[Limit, ...]:
        return self.base.limits if self.limits is None else self.limits[period]

    def before(self, period: int) -> int | None:
        """The period before; None: there is none, and the counts before it are `initial`."""
        if period > 0:
            return period - 1
        return self.periods - 1 if self.initial is None else None

    def window(self, period: int, option: int) -> tuple[list[int], bool]:
        """The periods in which a replica must run to serve in this one, and whether it must run from the start on."""
        reach = range(period - self.warmup_periods[option], period + 1)
        if self.initial is None:
            return sorted({s % self.periods for s in reach}), False
        return [s for s in reach if s >= 0], reach.start < 0

    def ready(self, held: Sequence[Sequence[int]], period: int) -> tuple[int, ...]:
        """Replicas that serve in a period with these running counts: those that ran through their whole warm-up.

        A stop removes the replicas that are not yet warm first, so the lowest count of the window stays warm.
        """
        counts = []
        for o in range(len(self.base.options)):
            periods, from_start = self.window(period, o)
            running = [held[s][o] for s in periods]
            counts.append(min([*running, self.initial[o]] if from_start and self.initial else running))
        return tuple(counts)

    def mix(self, period: int) -> MixProblem:
        supplies = tuple(
            replace(supply, available=self.available(period, f)) for f, supply in enumerate(self.base.supplies)
        )
        return replace(self.base, loads=self._loads(period), supplies=supplies, limits=self.limits_of(period))

    def merged(self, count: int) -> "HorizonProblem":
        """Fewer, longer periods, each of `count` periods: the highest rates, the lowest stock and all limits of them.

        A solution of it is one of this problem when each of its periods counts as `count` equal ones.
        """
        groups = [range(start, start + count) for start in range(0, self.periods, count)]
        if self.periods % count:
            raise ValueError(f"count: {count}, expected a divisor of {self.periods}")
        every = range(len(self.base.supplies))
        return replace(
            self,
            rates_rps=tuple(self._highest(group) for group in groups),
            period_h=self.period_h * count,
            stock=tuple(tuple(self._min_stock(group, f) for f in every) for group in groups),
            limits=tuple(tuple(limit for t in group for limit in self.limits_of(t)) for group in groups)
            if self.limits is not None
            else None,
        )

    def peak(self) -> "HorizonProblem":
        """One period as long as the whole: planning the peak all day, without switching."""
        return replace(self.merged(self.periods), initial=None)

    def _loads(self, period: int) -> tuple[Load, ...]:
        rates = self.rates_rps[period]
        return tuple(replace(load, rate_rps=rates[w]) for w, load in enumerate(self.base.loads))

    def _highest(self, group: Sequence[int]) -> Rates:
        loads = zip(*(self.rates_rps[t] for t in group), strict=True)
        return tuple(tuple(max(rates) for rates in zip(*load, strict=True)) for load in loads)

    def _min_stock(self, group: Sequence[int], supply: int) -> int | None:
        counts = (self.available(t, supply) for t in group)
        return min((count for count in counts if count is not None), default=None)

    def _violations(self) -> list[str]:
        base, violations = self.base, []
        if not 1 <= len(self.rates_rps) <= MAX_PERIODS:
            violations.append(f"rates_rps: {len(self.rates_rps)} periods, expected 1 to {MAX_PERIODS}")
        shape = [len(load.rate_rps) for load in base.loads]
        if any([len(load) for load in rates] != shape for rates in self.rates_rps):
            violations.append("rates_rps: expected one rate per period, load and bucket")
        if any(not 0 <= rate < float("inf") for rates in self.rates_rps for load in rates for rate in load):
            violations.append("rates_rps: expected finite numbers of at least 0")
        if not 0 < self.period_h < float("inf"):
            violations.append(f"period_h: {self.period_h}, expected a positive number")
        per_option = {"warmup_h": self.warmup_h} | ({} if self.initial is None else {"initial": self.initial})
        for name, values in per_option.items():
            if len(values) != len(base.options) or any(not 0 <= value < float("inf") for value in values):
                violations.append(f"{name}: expected one number of at least 0 per option")
        if len(self.markets) != len(base.supplies):
            violations.append("markets: expected one per supply")
        violations += [
            f"{name}: expected one per period"
            for name, rows in (("stock", self.stock), ("limits", self.limits))
            if rows is not None and len(rows) != len(self.rates_rps)
        ]
        if min(self.start_usd, self.stop_usd) < 0:
            violations.append("start_usd, stop_usd: expected at least 0")
        if not base.objective.counts_price or base.losses or base.own_nodes or base.erring_buckets:
            violations.append("base: a horizon counts $ only, without losses, own nodes or uncertain profiles")
        return violations
