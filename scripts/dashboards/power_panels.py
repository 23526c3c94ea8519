"""Panels of the power dashboard: caps, requests, the guard, API runs."""

from power.guard import GuardMode
from scripts.dashboards.grafana import Colour, Panel, Query, StateTimeline, TimeSeries, Unit
from scripts.dashboards.power_queries import ON_ROW, off_cap
from scripts.dashboards.promql import HERE, increase, meaning, one, quantile, quantiles, state

MODE_COLOURS = {
    GuardMode.NORMAL: Colour.GOOD,
    GuardMode.DEGRADED: Colour.ODD,
    GuardMode.TELEMETRY_LOST: Colour.WARN,
    GuardMode.BRAKED: Colour.BAD,
    GuardMode.RELEASING: Colour.CALM,
}


def caps() -> list[Panel]:
    return [
        TimeSeries(
            title="Planned, applied, enforced",
            description="Highest power of the servers of a row: by the policy, as commanded, and as read back.",
            queries=[
                Query(
                    expr=f"sum by (row, source) (fleetwright_power_cap_watts{{{ON_ROW}}})",
                    legend="{{row}} {{source}}",
                )
            ],
            unit=Unit.WATTS,
            steps=True,
        ),
        TimeSeries(
            title="Servers off their cap",
            description="Servers that enforce another cap than the commanded one.",
            queries=[one(off_cap(), legend="{{row}}")],
            steps=True,
        ),
        TimeSeries(
            title="Clocks",
            description="Clocks in force by priority and phase.",
            queries=[
                one(f"max by (row, phase) (fleetwright_gpu_clock_cap_hertz{{{ON_ROW}}})", legend="{{row}} {{phase}}")
            ],
            unit=Unit.HERTZ,
            steps=True,
        ),
        TimeSeries(
            title="Orders",
            description="Orders to servers, by path and outcome.",
            queries=[
                increase(
                    "fleetwright_power_cap_actuations_total",
                    by="row, path, result",
                    legend="{{row}} {{path}} {{result}}",
                    where=ON_ROW,
                )
            ],
            bars=True,
        ),
        TimeSeries(
            title="Time of an order",
            description="From sending the order to the server's answer, by share of orders.",
            queries=quantiles("fleetwright_power_cap_actuation_seconds", where=ON_ROW),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Brakes engaged",
            description="All brakes, by cause.",
            queries=[
                increase(
                    "fleetwright_power_brake_events_total", by="row, cause", legend="{{row}} {{cause}}", where=ON_ROW
                )
            ],
            bars=True,
        ),
    ]


def slo() -> list[Panel]:
    return [
        TimeSeries(
            title="Admission wait",
            description="From the arrival of a request at the router to its start, by priority and share of requests.",
            queries=_by_priority("fleetwright_router_admission_wait_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Time to first token",
            description="From the arrival of a request to the first event of its stream, by priority.",
            queries=_by_priority("fleetwright_router_ttft_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Waiting requests",
            description="In the queues of the routers now, by priority.",
            queries=[one(f"sum by (priority) (fleetwright_router_waiting{{{HERE}}})", legend="{{priority}}")],
            steps=True,
        ),
        TimeSeries(
            title="Admission limit",
            description="A prompt waits while the modelled power of the row, with the prompt, is above this limit.",
            queries=[
                one(
                    f"min by (row, priority) (fleetwright_power_admission_limit_watts{{{ON_ROW}}})",
                    legend="{{row}} {{priority}}",
                )
            ],
            unit=Unit.WATTS,
            steps=True,
        ),
    ]


def guard() -> list[Panel]:
    return [
        StateTimeline(
            title="State",
            description="State of the guard: the policy's setting, degraded or worst-case clocks, or the brake.",
            queries=[
                Query(expr=state("fleetwright_guard_mode", "mode", GuardMode, of="row", where=ON_ROW), legend="{{row}}")
            ],
            meanings=[meaning(i, mode, MODE_COLOURS[mode]) for i, mode in enumerate(GuardMode)],
        ),
        TimeSeries(
            title="Noticed",
            description="State changes, repeated commands, reloaded drivers, unresponsive servers and their recovery.",
            queries=[
                increase("fleetwright_guard_events_total", by="row, kind", legend="{{row}} {{kind}}", where=ON_ROW)
            ],
            bars=True,
        ),
        TimeSeries(
            title="Time of a cycle",
            description="From polling the agents to the last answer to an order; a cycle has two seconds.",
            queries=quantiles("fleetwright_guard_reconcile_duration_seconds", where=ON_ROW),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Budgets refused",
            description="Budget orders that the guard rejected; the previous budget stays.",
            queries=[
                increase("fleetwright_power_budget_refusals_total", by="row", legend="{{row}}", where=ON_ROW),
            ],
            bars=True,
        ),
    ]


def studies() -> list[Panel]:
    return [
        TimeSeries(
            title="Plans of caps",
            description="Cap plans, by outcome.",
            queries=[increase("fleetwright_power_plans_total", by="status", legend="{{status}}")],
            bars=True,
            width=6,
        ),
        TimeSeries(
            title="Time to plan caps",
            description="By share of plans.",
            queries=quantiles("fleetwright_power_plan_solve_seconds"),
            unit=Unit.SECONDS,
            width=6,
        ),
        TimeSeries(
            title="Rows simulated",
            description="Simulations by policy, and whether the brake engaged.",
            queries=[
                increase("fleetwright_power_simulations_total", by="policy, outcome", legend="{{policy}} {{outcome}}")
            ],
            bars=True,
            width=6,
        ),
        TimeSeries(
            title="Time to simulate",
            description="A row with its uncapped run, by share of simulations.",
            queries=quantiles("fleetwright_power_simulation_seconds"),
            unit=Unit.SECONDS,
            width=6,
        ),
    ]


def _by_priority(metric: str) -> list[Query]:
    return [
        one(quantile(share, metric, by="priority"), legend=f"{{{{priority}}}} {share * 100:g} %")
        for share in (0.5, 0.99)
    ]
