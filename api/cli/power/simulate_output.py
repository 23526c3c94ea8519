"""Output of a simulated row: brakes, utilization, impact and assumptions."""

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


def print_row(answer: RowResponse) -> None:
    """A heading, the objectives, and what the figures rest on."""
    print_line(_heading(answer))
    print_line("")
    waits = answer.admission_wait_s
    rows = [
        _row("high priority", answer.slo.high, POLCA_SLO[Priority.HIGH], waits.high),
        _row("low priority", answer.slo.low, POLCA_SLO[Priority.LOW], waits.low),
    ]
    print_table(Table(COLUMNS, rows))
    print_line("")
    for line in _remarks(answer):
        print_line(f"- {line}")


def _heading(answer: RowResponse) -> str:
    brakes = "1 brake" if answer.brakes == 1 else f"{answer.brakes:,} brakes"
    return (
        f"{answer.servers} servers on {answer.budget_w / 1000:,.1f} kW for {answer.days:g} days under {answer.policy}: "
        f"{brakes}, peak {answer.peak_utilization:.1%}; simulated in {answer.run_s:.1f} s"
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


def _remarks(answer: RowResponse) -> Iterator[str]:
    yield f"objectives {'held' if answer.slo_held else 'broken'}; {answer.seconds_over_budget:,.0f} s above the budget"
    more = answer.servers / answer.budget_servers - 1
    if answer.assumptions.peak_share is not None:
        yield (
            f"the budget is that of {answer.budget_servers} servers, whose uncapped peak is "
            f"{answer.assumptions.peak_share:.0%} of it: {more:+.0%} servers"
        )
    free = answer.uncapped
    saved = answer.energy_kwh / free.energy_kwh - 1 if free.energy_kwh else 0.0
    yield (
        f"{answer.energy_kwh:,.0f} kWh at a mean of {answer.mean_utilization:.1%}; uncapped {free.energy_kwh:,.0f} kWh "
        f"({saved:+.1%}), mean {free.mean_utilization:.1%}, peak {free.peak_utilization:.1%}"
    )
    yield f"{answer.requests:,} requests, {answer.unfinished:,} not done at the end"
    if answer.training_share:
        yield f"{answer.training_share:.0%} of the servers train"
    for event in answer.events[:5]:
        at = f"{int(event.at_s // 86400)} d {event.at_s % 86400 / 3600:.2f} h"
        yield f"{at}: {event.what}" + ("" if event.row_w is None else f" at {event.row_w / 1000:,.1f} kW")
    if len(answer.events) > 5:
        yield f"and {len(answer.events) - 5:,} events more"
    yield from _assumed(answer.assumptions)


def _assumed(told: Assumptions) -> Iterator[str]:
    before = "" if told.together == told.uncapped_together else f" ({told.uncapped_together} uncapped)"
    yield (
        f"assumed: {told.server}, {told.together} together{before}; {told.work}; "
        f"servers differ by {told.server_bias:.0%}"
    )
    yield (
        f"a clock c slows tokens by {told.token_sensitivity:g} (1/c - 1), prompts by {told.prompt_sensitivity:g} "
        f"(1/c - 1); watts above the floor go as c^{told.token_exponent:g} and c^{told.prompt_exponent:g}"
    )
    yield (
        f"late: the meter {told.telemetry_delay_s:g} s, commands {told.command_delay_s:g} s, "
        f"the brake {told.brake_delay_s:g} s; {'the guard runs' if told.guarded else 'no guard, the brake alone'}"
    )
