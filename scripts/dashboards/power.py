"""The power dashboard: utilization of rows against their budgets, actions of the guards, and impact on requests.

Guards report rows; the API reports domains of the power tree.  The lines at 80 and 89 per cent are POLCA's
thresholds (arXiv 2308.12908), for comparison.
"""

from math import inf

from power.guard import GuardMode
from power.policies.thresholds import T1, T2
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    bars,
    durations,
    heat_rows,
    lines,
    stat,
    steps,
    timeline,
)
from scripts.dashboards.kueue import ON_ROW, kueue_jobs
from scripts.dashboards.promql import (
    HERE,
    NAMESPACE,
    choice,
    highest,
    increase,
    meaning,
    one,
    quantile,
    quantiles,
    state,
)

BUSY = {0.0: Colour.CALM, 0.5: Colour.GOOD, T1: Colour.ODD, T2: Colour.WARN, 1.0: Colour.BAD}
STALE_S = 10.0  # as the alert FleetwrightGuardStale
MODE_COLOURS = {
    GuardMode.NORMAL: Colour.GOOD,
    GuardMode.DEGRADED: Colour.ODD,
    GuardMode.TELEMETRY_LOST: Colour.WARN,
    GuardMode.BRAKED: Colour.BAD,
    GuardMode.RELEASING: Colour.CALM,
}


def power() -> Dashboard:
    return Dashboard(
        uid="fleetwright-power",
        title="Fleetwright / Power",
        description="Power of rows and their budgets, actions of the guards, and the impact on requests.",
        variables=[NAMESPACE, choice("row", metric="fleetwright_row_power_budget_watts")],
        rows=[
            Row("Now", _now()),
            Row("Rows", _rows()),
            Row("Power tree", _tree()),
            Row("Caps", _caps()),
            Row("Requests", _slo()),
            Row("Guard", _guard()),
            Row("Kueue jobs", kueue_jobs()),
            Row("Plans and simulations", _plans_and_simulations()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Highest row utilization",
            "Power divided by budget, of the row where this is highest.",
            one(f"max(fleetwright_row_power_utilization_ratio{{{ON_ROW}}})"),
            unit=Unit.SHARE,
            thresholds=BUSY,
        ),
        stat(
            "Power brakes",
            "Times that a guard engaged the power brake, in the selected time range.",
            one(f"sum(increase(fleetwright_power_brake_events_total{{{ON_ROW}}}[$__range])) or vector(0)"),
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Time over budget",
            "Time with a reading above the budget, added up over all rows, in the selected time range.",
            one(f"sum(increase(fleetwright_power_budget_exceeded_seconds_total{{{ON_ROW}}}[$__range]))"),
            unit=Unit.SECONDS,
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Headroom in servers",
            "Servers that can be added to the row with the least headroom.",
            one(f"min({_headroom_servers()})"),
            thresholds={-inf: Colour.BAD, 1: Colour.GOOD},
        ),
        stat(
            "Oldest reading",
            "Age of the newest power reading, of the row where this is highest.",
            one(f"max(fleetwright_row_power_reading_age_seconds{{{ON_ROW}}})"),
            unit=Unit.SECONDS,
            thresholds={STALE_S / 2: Colour.WARN, STALE_S: Colour.BAD},
        ),
        stat(
            "Unresponsive servers",
            "Servers that ignore commands or do not respond.",
            one(f"sum(fleetwright_guard_unresponsive_servers{{{ON_ROW}}})"),
            thresholds={1: Colour.WARN},
        ),
    ]


def _rows() -> list[Panel]:
    return [
        lines(
            "Power and forecast",
            "Solid: readings. Dashed: the budget, and the highest power forecast for the next 2 s and 40 s at 99.9 %.",
            one(_of_row("row_power_watts"), legend="{{row}}"),
            one(_of_row("row_power_budget_watts"), legend="{{row}} budget", dashed=True),
            one(_forecast("40s", "0.999"), legend="{{row}} 40 s, 99.9 %", dashed=True),
            one(_forecast("2s", "0.999"), legend="{{row}} 2 s, 99.9 %", dashed=True),
            unit=Unit.WATTS,
            width=12,
            height=10,
        ),
        lines(
            "Row utilization",
            "Reading divided by budget. The lines are the two thresholds of the POLCA policy and the budget.",
            one(_of_row("row_power_utilization_ratio"), legend="{{row}}"),
            unit=Unit.SHARE,
            thresholds={T1: Colour.ODD, T2: Colour.WARN, 1.0: Colour.BAD},
            width=12,
            height=10,
        ),
        lines(
            "Forecast coverage",
            "Share of the last hour in which all readings of the next 40 s stayed below the 99.9 % forecast; "
            "99.9 % if the forecast is calibrated.",
            one(_held(), legend="{{row}}"),
            unit=Unit.SHARE,
        ),
        lines(
            "Headroom in servers by row",
            "Servers of the row's mean power that fit between the highest reading of the last day and the budget.",
            one(_headroom_servers(), legend="{{row}}"),
        ),
        durations(
            "Time until the budget expires",
            "Negative: the budget has expired, and the guard uses its standing budget.",
            one(_of_row("power_budget_remaining_seconds"), legend="{{row}}"),
            thresholds={-inf: Colour.BAD, 0: Colour.GOOD},
        ),
    ]


def _tree() -> list[Panel]:
    share = f"{_of_domain('planned_peak_watts')} / {_of_domain('limit_watts')}"
    return [
        heat_rows(
            "Planned utilization by domain",
            "Peak power at the planned clocks divided by the domain's limit.",
            one(share, legend="{{domain}}"),
            unit=Unit.SHARE,
            thresholds=BUSY,
            width=12,
        ),
        heat_rows(
            "Measured utilization by row",
            "Reading divided by budget, the highest of each interval.",
            one(
                f"max by (row) (max_over_time(fleetwright_row_power_utilization_ratio{{{ON_ROW}}}[$__rate_interval]))",
                legend="{{row}}",
            ),
            unit=Unit.SHARE,
            thresholds=BUSY,
            width=12,
        ),
        steps(
            "Budgets of domains",
            "Newest budget of each domain on the API.",
            one(_of_domain("budget_watts"), legend="{{domain}}"),
            unit=Unit.WATTS,
        ),
        durations(
            "Time until domain budgets expire",
            "Negative: expired. Guards use no expired budget.",
            one(_of_domain("budget_remaining_seconds"), legend="{{domain}}"),
        ),
        steps(
            "Stranded power",
            "Power limit of a domain that the newest cap plan leaves unused in every period.",
            one(_of_domain("stranded_watts"), legend="{{domain}}"),
            unit=Unit.WATTS,
        ),
        steps(
            "Peak power with and without caps",
            "Peak in the newest cap plan. Dashed: at full clocks. Solid: at the planned clocks.",
            one(_of_domain("uncapped_peak_watts"), legend="{{domain}} uncapped", dashed=True),
            one(_of_domain("planned_peak_watts"), legend="{{domain}} planned"),
            unit=Unit.WATTS,
            width=12,
        ),
        steps(
            "Shadow price of power",
            "Loss that one more kilowatt would save, in the period of the newest cap plan where this is highest.",
            one(_of_domain("loss_per_kilowatt"), legend="{{domain}}"),
            width=12,
        ),
    ]


def _caps() -> list[Panel]:
    return [
        steps(
            "Caps: planned, applied, enforced",
            "Maximum power of a row's servers at the planned, the commanded and the read-back clocks.",
            one(f"sum by (row, source) (fleetwright_power_cap_watts{{{ON_ROW}}})", legend="{{row}} {{source}}"),
            unit=Unit.WATTS,
        ),
        steps(
            "Servers not at their cap",
            "Servers that enforce another cap than the commanded one.",
            one(_off_cap(), legend="{{row}}"),
        ),
        steps(
            "Clocks",
            "Clocks in force, by row and by priority and phase of the requests.",
            highest("fleetwright_gpu_clock_cap_hertz", by="row, phase", where=ON_ROW),
            unit=Unit.HERTZ,
        ),
        bars(
            "Commands",
            "Commands to servers, by path and result.",
            increase("fleetwright_power_cap_actuations_total", by="row, path, result", where=ON_ROW),
        ),
        durations(
            "Command latency",
            "From sending a command to the server's response, by percentile.",
            *quantiles("fleetwright_power_cap_actuation_seconds", where=ON_ROW),
        ),
        bars(
            "Power brakes by cause",
            "Times that a guard engaged the power brake.",
            increase("fleetwright_power_brake_events_total", by="row, cause", where=ON_ROW),
        ),
    ]


def _slo() -> list[Panel]:
    return [
        durations(
            "Admission wait",
            "From the arrival of a request at the router to its dispatch to an engine, by priority and percentile.",
            *_by_priority("fleetwright_router_admission_wait_seconds"),
        ),
        durations(
            "Time to first token",
            "From the arrival of a request at the router to the first event of its stream, by priority and percentile.",
            *_by_priority("fleetwright_router_ttft_seconds"),
        ),
        steps(
            "Waiting requests",
            "Requests in the queues of the routers, by priority.",
            one(f"sum by (priority) (fleetwright_router_waiting{{{HERE}}})", legend="{{priority}}"),
        ),
        steps(
            "Admission limit",
            "A prompt waits at the router while the row's modelled power, including the prompt, is above this limit.",
            one(
                f"min by (row, priority) (fleetwright_power_admission_limit_watts{{{ON_ROW}}})",
                legend="{{row}} {{priority}}",
            ),
            unit=Unit.WATTS,
        ),
    ]


def _guard() -> list[Panel]:
    return [
        timeline(
            "Guard state",
            "Normal: clocks of the policy. Degraded: at most the degraded clocks. Telemetry lost: worst-case clocks. "
            "Braked: the power brake is engaged. Releasing: the guard releases the brake.",
            one(state("fleetwright_guard_mode", "mode", GuardMode, of="row", where=ON_ROW), legend="{{row}}"),
            meanings=[meaning(i, mode, MODE_COLOURS[mode]) for i, mode in enumerate(GuardMode)],
        ),
        bars(
            "Guard events",
            "State changes, repeated commands, reloaded drivers, unresponsive servers and their recovery.",
            increase("fleetwright_guard_events_total", by="row, kind", where=ON_ROW),
        ),
        durations(
            "Guard reconcile duration",
            "From polling the agents to the last response to a command, by percentile.",
            *quantiles("fleetwright_guard_reconcile_duration_seconds", where=ON_ROW),
        ),
        bars(
            "Rejected budgets",
            "Budgets that the guard rejected; the previous budget remains in force.",
            increase("fleetwright_power_budget_refusals_total", by="row", where=ON_ROW),
        ),
        bars(
            "Fetched budgets",
            "Fetches of the budget from the API, by result.",
            increase("fleetwright_power_budget_fetches_total", by="row, result", where=ON_ROW),
        ),
    ]


def _plans_and_simulations() -> list[Panel]:
    return [
        bars(
            "Cap plans",
            "Created cap plans, by status.",
            increase("fleetwright_power_plans_total", by="status"),
            width=6,
        ),
        durations(
            "Cap plan solve time",
            "Solver time of cap plans, by percentile.",
            *quantiles("fleetwright_power_plan_solve_seconds"),
            width=6,
        ),
        bars(
            "Simulations",
            "Simulated rows, by policy and by whether the brake engaged.",
            increase("fleetwright_power_simulations_total", by="policy, outcome"),
            width=6,
        ),
        durations(
            "Simulation duration",
            "Simulation of a row and of its uncapped reference, by percentile.",
            *quantiles("fleetwright_power_simulation_seconds"),
            width=6,
        ),
    ]


def _by_priority(metric: str) -> list[Query]:
    return [
        one(quantile(share, metric, by="priority"), legend=f"{{{{priority}}}} {share * 100:g} %")
        for share in (0.5, 0.99)
    ]


def _of_row(name: str) -> str:
    return f"max by (row) (fleetwright_{name}{{{ON_ROW}}})"


def _of_domain(name: str) -> str:
    """Return a metric of each domain; every replica of the API reports the same."""
    return f"max by (domain) (fleetwright_power_domain_{name}{{{HERE}}})"


def _forecast(horizon: str, share: str, *, ago: str = "") -> str:
    where = f'{ON_ROW}, horizon="{horizon}", quantile="{share}"'
    offset = f" offset {ago}" if ago else ""
    return f"max by (row) (fleetwright_row_power_forecast_watts{{{where}}}{offset})"


def _held() -> str:
    """Return the coverage: the highest reading of 40 s against its forecast; only pairs count."""
    highest = f"max by (row) (max_over_time(fleetwright_row_power_watts{{{ON_ROW}}}[40s]))"
    return f"avg_over_time(({highest} <= bool {_forecast('40s', '0.999', ago='40s')})[1h:10s])"


def _headroom_servers() -> str:
    """(budget - highest reading) / (highest reading / servers)."""
    highest = f"max by (row) (max_over_time(fleetwright_row_power_watts{{{ON_ROW}}}[1d]))"
    servers = f'count by (row) (fleetwright_power_cap_watts{{{ON_ROW}, source="applied"}})'
    return f"floor(({_of_row('row_power_budget_watts')} - {highest}) * {servers} / {highest})"


def _off_cap() -> str:
    """Count the servers whose enforced cap differs from the commanded one by more than a watt."""
    applied, enforced = (
        f'max by (row, server) (fleetwright_power_cap_watts{{{ON_ROW}, source="{source}"}})'
        for source in ("applied", "enforced")
    )
    return f"sum by (row) (abs({applied} - {enforced}) > bool 1)"
