"""The power dashboard: utilization of rows against their budgets, actions of the guards, and impact on requests.

Guards report rows; the API reports domains of the power tree.  The lines at 80 and 89 per cent are POLCA's
thresholds (arXiv 2308.12908), for comparison.
"""

from power.policies.thresholds import T1, T2
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    HeatRows,
    Panel,
    Query,
    Row,
    Stat,
    TimeSeries,
    Unit,
    Variable,
)
from scripts.dashboards.power_panels import caps, guard, slo, studies
from scripts.dashboards.power_queries import BUSY, ON_ROW, forecast, headroom_servers, held, of_domain, of_row
from scripts.dashboards.promql import HERE, one

STALE_S = 10.0  # as the alert FleetwrightGuardStale


def power() -> Dashboard:
    return Dashboard(
        uid="fleetwright-power",
        title="Fleetwright / Power",
        description="Rows against their budgets, actions of the guards, and the impact on requests.",
        variables=[
            Variable(name="namespace", label="Namespace", query="label_values(fleetwright_build_info, namespace)"),
            Variable(
                name="row",
                label="Row",
                query=f"label_values(fleetwright_row_power_budget_watts{{{HERE}}}, row)",
                all_values=True,
            ),
        ],
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Rows", panels=_rows()),
            Row(title="Power tree", panels=_tree()),
            Row(title="Caps", panels=caps()),
            Row(title="Requests", panels=slo()),
            Row(title="Guard", panels=guard()),
            Row(title="Studies", panels=studies()),
        ],
    )


def _now() -> list[Panel]:
    return [
        Stat(
            title="Fullest row",
            description="The highest reading over its budget, of all rows.",
            queries=[one(f"max(fleetwright_row_power_utilization_ratio{{{ON_ROW}}})")],
            unit=Unit.SHARE,
            thresholds=BUSY,
        ),
        Stat(
            title="Brakes",
            description="Over the whole time range shown.",
            queries=[one(f"sum(increase(fleetwright_power_brake_events_total{{{ON_ROW}}}[$__range])) or vector(0)")],
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Time over budget",
            description="Of all rows together, over the whole time range shown.",
            queries=[one(f"sum(increase(fleetwright_power_budget_exceeded_seconds_total{{{ON_ROW}}}[$__range]))")],
            unit=Unit.SECONDS,
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Headroom",
            description="Servers like those present that the fullest row could take at its highest reading of a day.",
            queries=[one(f"min({headroom_servers()})")],
            thresholds={0: Colour.BAD, 1: Colour.GOOD},
        ),
        Stat(
            title="Oldest reading",
            description="Age of the newest reading of the row with the oldest one.",
            queries=[one(f"max(fleetwright_row_power_reading_age_seconds{{{ON_ROW}}})")],
            unit=Unit.SECONDS,
            thresholds={STALE_S / 2: Colour.WARN, STALE_S: Colour.BAD},
        ),
        Stat(
            title="Unresponsive servers",
            description="Servers that ignore commands or do not answer.",
            queries=[one(f"sum(fleetwright_guard_unresponsive_servers{{{ON_ROW}}})")],
            thresholds={1: Colour.WARN},
        ),
    ]


def _rows() -> list[Panel]:
    return [
        TimeSeries(
            title="Power and forecast",
            description="Solid: readings. Dashed: the budget, and the level that the next 40 s stay "
            "below with 99.9 % certainty.",
            queries=[
                Query(expr=of_row("row_power_watts"), legend="{{row}}"),
                Query(expr=of_row("row_power_budget_watts"), legend="{{row}} budget", dashed=True),
                Query(expr=forecast("40s", "0.999"), legend="{{row}} 40 s, 99.9 %", dashed=True),
                Query(expr=forecast("2s", "0.999"), legend="{{row}} 2 s, 99.9 %", dashed=True),
            ],
            unit=Unit.WATTS,
            width=12,
            height=10,
        ),
        TimeSeries(
            title="Utilisation",
            description="Reading over budget; the lines are POLCA's thresholds and the budget.",
            queries=[one(of_row("row_power_utilization_ratio"), legend="{{row}}")],
            unit=Unit.SHARE,
            thresholds={T1: Colour.ODD, T2: Colour.WARN, 1.0: Colour.BAD},
            width=12,
            height=10,
        ),
        TimeSeries(
            title="Forecast coverage",
            description="Share of the last hour in which all readings of 40 s stayed below their forecast: "
            "a calibrated forecast of 99.9 % shows 99.9 %.",
            queries=[one(held(), legend="{{row}}")],
            unit=Unit.SHARE,
        ),
        TimeSeries(
            title="Headroom in servers",
            description="Servers like those present that fit between the highest reading of a day and the budget.",
            queries=[one(headroom_servers(), legend="{{row}}")],
        ),
        TimeSeries(
            title="Budget left",
            description="Until the planner's budget expires; negative: the guard uses its standing budget.",
            queries=[one(of_row("power_budget_remaining_seconds"), legend="{{row}}")],
            unit=Unit.SECONDS,
            thresholds={0: Colour.GOOD},
        ),
    ]


def _tree() -> list[Panel]:
    share = f"{of_domain('planned_peak_watts')} / {of_domain('limit_watts')}"
    return [
        HeatRows(
            title="Planned utilisation by domain",
            description="Peak at the planned clocks over what the domain can carry.",
            queries=[one(share, legend="{{domain}}")],
            unit=Unit.SHARE,
            thresholds=BUSY,
            width=12,
        ),
        HeatRows(
            title="Measured utilisation by row",
            description="Reading over budget, the highest of each interval.",
            queries=[
                one(
                    "max by (row) (max_over_time("
                    f"fleetwright_row_power_utilization_ratio{{{ON_ROW}}}[$__rate_interval]))",
                    legend="{{row}}",
                )
            ],
            unit=Unit.SHARE,
            thresholds=BUSY,
            width=12,
        ),
        TimeSeries(
            title="Budgets of domains",
            description="Last budgets set on the API.",
            queries=[one(of_domain("budget_watts"), legend="{{domain}}")],
            unit=Unit.WATTS,
            steps=True,
        ),
        TimeSeries(
            title="Budgets of domains expire in",
            description="No guard uses an expired budget.",
            queries=[one(of_domain("budget_remaining_seconds"), legend="{{domain}}")],
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Stranded power",
            description="Capacity of a domain that the newest cap plan never uses.",
            queries=[one(of_domain("stranded_watts"), legend="{{domain}}")],
            unit=Unit.WATTS,
            steps=True,
        ),
        TimeSeries(
            title="Peak, capped and not",
            description="Dashed: at full clock. Solid: at the planned clocks. Both at the plan's risk.",
            queries=[
                Query(expr=of_domain("uncapped_peak_watts"), legend="{{domain}} uncapped", dashed=True),
                Query(expr=of_domain("planned_peak_watts"), legend="{{domain}} planned"),
            ],
            unit=Unit.WATTS,
            steps=True,
            width=12,
        ),
        TimeSeries(
            title="Price of a kilowatt",
            description="Loss that one more kW would save, in the period of the newest plan with the highest price.",
            queries=[one(of_domain("loss_per_kilowatt"), legend="{{domain}}")],
            steps=True,
            width=12,
        ),
    ]
