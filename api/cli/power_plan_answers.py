"""How a cap plan is shown: the periods that need caps, the feeds on the way, what hangs where, what could be added."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from api.cli.streams import note, say
from api.cli.tables import Column, Table, number, say_table

if TYPE_CHECKING:
    from power.caps import CapPlan, FeedCaps, FeedRoom, PeriodCaps

KW = 1000.0
MOST_ROWS = 40

PERIODS = (
    number("period"),
    Column("status"),
    number("loss (servers)", decimals=3),
    number("on one side", decimals=3),
    number("capped classes"),
    Column("binding"),
)
FEEDS = (
    Column("feed"),
    number("period"),
    number("limit kW", decimals=1),
    number("uncapped kW", decimals=1),
    number("capped kW", decimals=1),
    number("budget kW", decimals=1),
    number("one side kW", decimals=1),
    number("loss per kW", decimals=4),
)
CLASSES = (
    Column("class"),
    number("token clock", decimals=2),
    number("prompt clock", decimals=2),
    number("slowdown %", decimals=2),
    number("loss (servers)", decimals=3),
    number("one side: token", decimals=2),
    number("prompt", decimals=2),
)
ROOM = (
    Column("feed"),
    number("servers"),
    Column("more at full clock", right=True),
    Column("more with caps", right=True),
    number("stranded kW", decimals=1),
    Column("full first"),
    Column("risk sampled", right=True),
)


def say_caps(plan: "CapPlan") -> None:
    """The plan for people; what is long is cut, and says so."""
    if plan.loss is None:
        say(f"{plan.tree}: {plan.status} at a risk of {plan.risk:g}: no budget is given, those in force stay")
        for conflict in plan.conflicts:
            say(conflict.reason)
        return
    gap = 0.0 if plan.gap is None else 100 * plan.gap
    binding = plan.binding or "no feed"
    say(f"{plan.tree}: loss {plan.loss:.4g} servers (gap {gap:.2f} %), risk {plan.risk:g}, {binding} binds")
    say("")
    say_table(Table(PERIODS, [_period(period) for period in plan.periods]))
    worst = max(plan.periods, key=lambda period: (period.loss or 0.0, period.lost_loss or 0.0))
    say("")
    say_table(Table(FEEDS, _cut([_feed(worst.period, feed) for feed in worst.feeds], "feeds")))
    capped = [one for one in worst.classes if one.slowdown > 1 or (one.lost_token_clock or 1) < 1]
    if capped:
        say("")
        rows: list[tuple[object, ...]] = [
            (
                one.name,
                one.token_clock,
                one.prompt_clock,
                100 * (one.slowdown - 1),
                one.loss,
                one.lost_token_clock,
                one.lost_prompt_clock,
            )
            for one in capped
        ]
        say_table(Table(CLASSES, _cut(rows, "classes")))


def say_room(growth: "Iterable[FeedRoom]") -> None:
    """What each feed could take."""
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
    say_table(Table(ROOM, _cut(rows, "feeds")))


def _period(period: "PeriodCaps") -> tuple[object, ...]:
    capped = sum(one.slowdown > 1 for one in period.classes)
    binding = ", ".join(period.binding[:3]) or None
    return period.period, period.status.value, period.loss, period.lost_loss, capped, binding


def _feed(period: int, feed: "FeedCaps") -> tuple[object, ...]:
    watts = (feed.limit_w, feed.uncapped_peak_w, feed.peak_w, feed.budget_w, feed.lost_limit_w)
    return (feed.name, period, *(None if w is None else w / KW for w in watts), feed.loss_per_kw)


def _cut(rows: list[tuple[object, ...]], what: str) -> list[tuple[object, ...]]:
    if len(rows) > MOST_ROWS:
        note(f"{MOST_ROWS} of {len(rows):,} {what} are shown; --format json holds all")
    return rows[:MOST_ROWS]
