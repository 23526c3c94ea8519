"""Prints a cap plan: binding feeds, clocks of each class, headroom."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from api.cli.common.console import note, print_line
from api.cli.common.tables import Column, Table, number, print_table

if TYPE_CHECKING:
    from power.caps import CapPlan, ClassCaps, FeedCaps, FeedHeadroom, PeriodCaps

KW = 1000.0
MAX_ROWS = 40
MAX_NAMES = 3

PERIODS = (
    Column("hours"),
    Column("status"),
    number("loss", decimals=3),
    number("on one side", decimals=3),
    number("capped classes"),
    Column("binding"),
)
FEEDS = (
    Column("feed"),
    number("may draw kW", decimals=1),
    number("uncapped kW", decimals=1),
    number("capped kW", decimals=1),
    number("budget kW", decimals=1),
    number("one side kW", decimals=1),
    number("loss per kW", decimals=4),
)
CLOCKS = (
    Column("servers"),
    Column("hours"),
    number("token clock", decimals=2),
    number("prompt clock", decimals=2),
    number("slower %", decimals=2),
    number("allowed %", decimals=2),
    number("one side: token", decimals=2),
    number("prompt", decimals=2),
)
HEADROOM = (
    Column("feed"),
    number("servers"),
    Column("more at full clock", right=True),
    Column("more with caps", right=True),
    number("stranded kW", decimals=1),
    Column("full first"),
    Column("risk sampled", right=True),
)


class _Hold(NamedTuple):
    token_clock: float
    prompt_clock: float
    slowdown: float
    slack: float
    lost_token_clock: float | None
    lost_prompt_clock: float | None


def print_caps(plan: "CapPlan") -> None:
    """Print the plan for people; long tables are cut with a note."""
    if plan.loss is None:
        print_line(f"{plan.tree}: {plan.status} at a risk of {plan.risk:g}: no budget is given, those in force stay")
        for conflict in plan.conflicts:
            print_line(conflict.reason)
        return
    gap = 0.0 if plan.gap is None else 100 * plan.gap
    binding = plan.binding or "no feed"
    print_line(f"{plan.tree}: loss {plan.loss:.4g} servers (gap {gap:.2f} %), risk {plan.risk:g}, {binding} binds")
    print_line("")
    print_table(Table(PERIODS, [_period(plan, period) for period in plan.periods]))
    clocks = list(_clocks(plan))
    if clocks:
        print_line("")
        print_table(Table(CLOCKS, _cut(clocks, "lines of clocks")))
    worst = max(plan.periods, key=lambda period: (period.loss or 0.0, period.lost_loss or 0.0))
    print_line("")
    print_line(f"hours {_hours(plan, worst.period, worst.period)}, the dearest:")
    print_table(Table(FEEDS, _cut([_feed(feed) for feed in worst.feeds], "feeds")))
    remarks = list(_remarks(plan))
    if remarks:
        print_line("")
    for line in remarks:
        print_line(f"- {line}")


def print_headroom(growth: "Iterable[FeedHeadroom]") -> None:
    """Print the growth that each feed allows."""
    rows: list[tuple[object, ...]] = []
    for one in growth:
        full, capped = one.uncapped.servers, one.capped.servers
        risk = None if one.capped.risk is None else f"{one.capped.risk.low:.2g} to {one.capped.risk.high:.2g}"
        if one.capped.limited_by is None:
            rows.append((one.feed, one.servers, None, None, None, None, risk))
            continue
        stranded_kw = max(0.0, one.uncapped.stranded_w.mid) / KW
        rows.append(
            (
                one.feed,
                one.servers,
                f"{full.mid:.0f} ({full.low:.0f} to {full.high:.0f})",
                f"{capped.mid:.0f} ({capped.low:.0f} to {capped.high:.0f})",
                stranded_kw,
                one.capped.limited_by,
                risk,
            )
        )
    print_table(Table(HEADROOM, _cut(rows, "feeds")))


def _period(plan: "CapPlan", period: "PeriodCaps") -> tuple[object, ...]:
    capped = sum(one.slowdown > 1 for one in period.classes)
    binding = _listed(period.binding) or None
    hours = _hours(plan, period.period, period.period)
    return hours, period.status.value, period.loss, period.lost_loss, capped, binding


def _feed(feed: "FeedCaps") -> tuple[object, ...]:
    watts = (feed.limit_w, feed.uncapped_peak_w, feed.peak_w, feed.budget_w, feed.lost_limit_w)
    return (feed.name, *(None if w is None else w / KW for w in watts), feed.loss_per_kw)


def _clocks(plan: "CapPlan") -> Iterator[tuple[object, ...]]:
    """Merge neighbouring periods with equal clocks, and feeds on which a group has equal clocks."""
    alike: dict[tuple[str, int, int, _Hold], list[str]] = {}
    for classes in zip(*(period.classes for period in plan.periods), strict=True):
        runs = groupby(enumerate(classes), key=lambda found: _hold(found[1]))
        for hold, run in runs:
            periods = [period for period, _ in run]
            if hold.slowdown > 1 or (hold.lost_token_clock or 1) < 1 or (hold.lost_prompt_clock or 1) < 1:
                key = (classes[0].group, plan.periods[periods[0]].period, plan.periods[periods[-1]].period, hold)
                alike.setdefault(key, []).append(classes[0].feed)
    for (group, first, last, hold), feeds in alike.items():
        yield (
            f"{group} on {_listed(feeds)}",
            _hours(plan, first, last),
            hold.token_clock,
            hold.prompt_clock,
            100 * (hold.slowdown - 1),
            100 * hold.slack,
            hold.lost_token_clock,
            hold.lost_prompt_clock,
        )


def _hold(one: "ClassCaps") -> _Hold:
    return _Hold(
        one.token_clock, one.prompt_clock, one.slowdown, one.slack, one.lost_token_clock, one.lost_prompt_clock
    )


def _remarks(plan: "CapPlan") -> Iterator[str]:
    broken: dict[str, dict[int, None]] = {}
    for period in plan.periods:
        for one in period.classes:
            if not one.within_slack:
                broken.setdefault(one.group, {})[period.period] = None
    for group, periods in broken.items():
        hours = ", ".join(_hours(plan, period, period) for period in list(periods)[:MAX_NAMES])
        more = f" and {len(periods) - MAX_NAMES} periods more" if len(periods) > MAX_NAMES else ""
        yield f"{group} is slower than allowed in hours {hours}{more}: fewer servers, or more watts, would spare it"
    if plan.loss:
        yield "loss: servers with their allowed slowdown used up; loss per kW: the loss that one more kW would save"


def _hours(plan: "CapPlan", first: int, last: int) -> str:
    return f"{first * plan.period_h:g}-{(last + 1) * plan.period_h:g}"


def _listed(names: "Iterable[str]") -> str:
    found = list(names)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(found[:MAX_NAMES]) + more


def _cut(rows: list[tuple[object, ...]], noun: str) -> list[tuple[object, ...]]:
    if len(rows) > MAX_ROWS:
        note(f"{MAX_ROWS} of {len(rows):,} {noun} are shown; --format json has all")
    return rows[:MAX_ROWS]
