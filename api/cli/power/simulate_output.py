"""Prints a simulated row: brakes, utilization, impact and assumptions."""

from collections.abc import Iterator

from api.cli.common.console import print_line
from api.cli.common.tables import Column, Table, number, print_table
from power.controls import Priority
from power.slo_impact import POLCA_SLO, Limit
from power.whatif.response import Assumptions, Impact, RowResponse, Waits

COLUMNS = (
    Column("latency"),
    Column("p50", right=True),
    Column("limit", right=True),
    Column("p99", right=True),
    Column("limit", right=True),
    number("held"),
    number("longest wait s", decimals=1),
)


def print_row(found: RowResponse) -> None:
    print_line(_heading(found))
    print_line("")
    waits = found.admission_wait_s
    rows = [
        _row("high priority", found.slo.high, POLCA_SLO[Priority.HIGH], waits.high),
        _row("low priority", found.slo.low, POLCA_SLO[Priority.LOW], waits.low),
    ]
    print_table(Table(COLUMNS, rows))
    print_line("")
    for line in _remarks(found):
        print_line(f"- {line}")


def _heading(found: RowResponse) -> str:
    brakes = "1 brake" if found.brakes == 1 else f"{found.brakes:,} brakes"
    return (
        f"{found.servers} servers on {found.budget_w / 1000:,.1f} kW for {found.days:g} days under {found.policy}: "
        f"{brakes}, peak {found.peak_utilization:.1%}; simulated in {found.run_s:.1f} s"
    )


def _row(name: str, impact: Impact, limit: Limit, waits: Waits) -> tuple[object, ...]:
    return (
        name,
        _share(impact.p50),
        f"< {limit.p50:.0%}",
        _share(impact.p99),
        f"< {limit.p99:.0%}",
        waits.held,
        waits.longest_s,
    )


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:+.2%}"


def _remarks(found: RowResponse) -> Iterator[str]:
    yield f"objectives {'held' if found.slo_held else 'broken'}; {found.seconds_over_budget:,.0f} s above the budget"
    more = found.servers / found.budget_servers - 1
    if found.assumptions.peak_share is not None:
        yield (
            f"the budget is that of {found.budget_servers} servers, whose uncapped peak is "
            f"{found.assumptions.peak_share:.0%} of it: {more:+.0%} servers"
        )
    free = found.uncapped
    saved = found.energy_kwh / free.energy_kwh - 1 if free.energy_kwh else 0.0
    yield (
        f"{found.energy_kwh:,.0f} kWh at a mean of {found.mean_utilization:.1%}; uncapped {free.energy_kwh:,.0f} kWh "
        f"({saved:+.1%}), mean {free.mean_utilization:.1%}, peak {free.peak_utilization:.1%}"
    )
    yield f"{found.requests:,} requests, {found.unfinished:,} not done at the end"
    if found.training_share:
        yield f"{found.training_share:.0%} of the servers train"
    for event in found.events[:5]:
        at = f"{int(event.at_s // 86400)} d {event.at_s % 86400 / 3600:.2f} h"
        yield f"{at}: {event.what}" + ("" if event.row_w is None else f" at {event.row_w / 1000:,.1f} kW")
    if len(found.events) > 5:
        yield f"and {len(found.events) - 5:,} events more"
    yield from _assumed(found.assumptions)


def _assumed(assumed: Assumptions) -> Iterator[str]:
    before = "" if assumed.together == assumed.uncapped_together else f" ({assumed.uncapped_together} uncapped)"
    yield (
        f"assumed: {assumed.server}, {assumed.together} together{before}; {assumed.work}; "
        f"servers differ by {assumed.server_bias:.0%}"
    )
    yield (
        f"a clock c slows tokens by {assumed.token_sensitivity:g} (1/c - 1), prompts by {assumed.prompt_sensitivity:g} "
        f"(1/c - 1); watts above the floor go as c^{assumed.token_exponent:g} and c^{assumed.prompt_exponent:g}"
    )
    yield (
        f"late: the meter {assumed.telemetry_delay_s:g} s, commands {assumed.command_delay_s:g} s, "
        f"the brake {assumed.brake_delay_s:g} s; {'the guard runs' if assumed.guarded else 'no guard, the brake alone'}"
    )
