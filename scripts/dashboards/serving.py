"""The serving dashboard: latency against the SLO, outcomes, goodput, and cost.

Routers report requests by route; the API reports what planning loops observe of each workload, and the cost of targets.
"""

from math import inf

from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Link,
    Panel,
    Row,
    TextBox,
    Unit,
    bars,
    durations,
    lines,
    stat,
    steps,
)
from scripts.dashboards.promql import HERE, NAMESPACE, choice, highest, increase, one, quantile, quantiles

ON_WORKLOAD = f'{HERE}, workload=~"$workload"'
TTFT = "fleetwright_router_ttft_seconds"
TARGET_PAGE = Link(title="Target in the console", page="#/targets/${__field.labels.target}")
FAILED_SHARE = 0.05  # as the alert FleetwrightRouterFailing


def serving() -> Dashboard:
    return Dashboard(
        uid="fleetwright-serving",
        title="Fleetwright / Serving",
        description="Latency against the SLO, outcomes of requests, goodput and cost.",
        variables=[
            NAMESPACE,
            choice("workload", metric="fleetwright_target_cost_usd_per_hour"),
            TextBox(name="ttft_slo", label="Limit of TTFT, a bucket in s", default="2.5"),
        ],
        rows=[
            Row("Now", _now()),
            Row("Latency against the SLO", _latency()),
            Row("Cost", _cost()),
            Row("Requests at the routers", _requests()),
            Row("Routes", _routes()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Completed requests",
            "Requests per second that routers completed.",
            one(f"sum(namespace_priority:fleetwright_router_completed_requests:rate5m{{{HERE}}})"),
            unit=Unit.PER_SECOND,
        ),
        stat(
            "Failed requests",
            "Share of the requests of the last five minutes that failed at a route or found no replica.",
            one(f"max(namespace:fleetwright_router_failed_requests:ratio_rate5m{{{HERE}}})"),
            unit=Unit.SHARE,
            thresholds={0.01: Colour.WARN, FAILED_SHARE: Colour.BAD},
        ),
        stat(
            "First tokens within the limit",
            "Share of the streams of the last five minutes whose first token came within the limit in the box above.",
            one(_within_limit("5m")),
            unit=Unit.SHARE,
            thresholds={-inf: Colour.BAD, 0.9: Colour.WARN, 0.99: Colour.GOOD},
        ),
        stat("Waiting", "Requests in the queues of the routers.", one(f"sum(fleetwright_router_waiting{{{HERE}}})")),
        stat("Applied cost", "Of the running replicas, per hour.", one(f"sum({_cost_of('applied')})"), unit=Unit.USD),
        stat(
            "Planned minus applied cost",
            "Per hour; below zero: more replicas run than planned.",
            one(f"sum({_cost_of('planned')}) - sum({_cost_of('applied')})"),
            unit=Unit.USD,
        ),
    ]


def _latency() -> list[Panel]:
    latency, limit = "fleetwright_workload_latency_seconds", "fleetwright_workload_latency_limit_seconds"
    by = "workload, statistic"
    return [
        *(
            durations(
                title,
                "Observed in the last window of the planning loop, by workload. Dashed: the limit of the SLO.",
                highest(latency, by=by, where=f'{ON_WORKLOAD}, kind="{kind}"'),
                highest(
                    limit,
                    by=by,
                    where=f'{ON_WORKLOAD}, kind="{kind}"',
                    legend="{{workload}} {{statistic}} limit",
                    dashed=True,
                ),
                width=6,
            )
            for title, kind in (("Time to first token of workloads", "ttft"), ("Time per token of workloads", "tpot"))
        ),
        lines(
            "Latency by GPU type",
            "Observed over predicted latency; 1: as predicted.",
            one(
                f"max by (gpu, kind) (fleetwright_planning_loop_drift_ratio{{{HERE}}})",
                legend="{{gpu}} {{kind}}",
            ),
            width=6,
        ),
        lines(
            "Engines",
            "Use of the KV cache, prefix hits and errors of each workload.",
            highest("fleetwright_workload_ratio", by="workload, kind", where=ON_WORKLOAD),
            unit=Unit.SHARE,
            width=6,
        ),
    ]


def _cost() -> list[Panel]:
    tokens = f'sum by (workload) (fleetwright_workload_tokens_per_second{{{ON_WORKLOAD}, direction="output"}})'
    return [
        steps(
            "Cost per hour",
            "Dashed: of the planned replicas. Solid: of the running ones, at the prices of the plan.",
            one(_cost_of("planned"), legend="{{target}} planned", dashed=True),
            one(_cost_of("applied"), legend="{{target}} applied"),
            unit=Unit.USD,
            link=TARGET_PAGE,
        ),
        lines(
            "Cost per million output tokens",
            "Applied cost over the output tokens of the completed requests.",
            one(
                f"sum by (workload) ({_cost_of('applied')}) / 3600 / ({tokens} > 0) * 1e6",
                legend="{{workload}}",
            ),
            unit=Unit.USD,
        ),
        lines(
            "Tokens",
            "Tokens per second of the completed requests, by direction.",
            highest("fleetwright_workload_tokens_per_second", by="workload, direction", where=ON_WORKLOAD),
        ),
    ]


def _requests() -> list[Panel]:
    return [
        bars(
            "Outcomes",
            "Requests that ended, by outcome.",
            increase("fleetwright_router_requests_total", by="outcome"),
        ),
        lines(
            "Goodput",
            "Completed requests per second whose first token came within the limit in the box above.",
            one(
                f"sum(rate({TTFT}_bucket{{{HERE}, {_LIMIT}}}[$__rate_interval]))",
                legend="goodput",
            ),
            one(f"sum(rate({TTFT}_count{{{HERE}}}[$__rate_interval]))", legend="streams", dashed=True),
            unit=Unit.PER_SECOND,
        ),
        lines(
            "Completed by priority",
            "Requests per second that routers completed.",
            one(f"namespace_priority:fleetwright_router_completed_requests:rate5m{{{HERE}}}", legend="{{priority}}"),
            unit=Unit.PER_SECOND,
        ),
        durations(
            "Time to first token by route",
            "From the arrival at the router to the first event of the stream, 99 %.",
            one(quantile(0.99, TTFT, by="route"), legend="{{route}}"),
        ),
        durations(
            "Time per token by route",
            "Mean time between the tokens of a stream, 99 %.",
            one(quantile(0.99, "fleetwright_router_tpot_seconds", by="route"), legend="{{route}}"),
        ),
        steps(
            "Queues",
            "Requests that wait in engines, by workload, and at routers, by priority.",
            highest("fleetwright_workload_requests", by="workload, state", where=ON_WORKLOAD),
            one(f"sum by (priority) (fleetwright_router_waiting{{{HERE}}})", legend="router {{priority}}"),
        ),
    ]


def _routes() -> list[Panel]:
    return [
        bars(
            "Dispatched requests",
            "Requests sent to each route; spilled: another route was due, but had no free slot.",
            increase(
                "fleetwright_router_dispatched_total", by="route, spilled", legend="{{route}}, spilled {{spilled}}"
            ),
        ),
        steps(
            "Requests in flight",
            "Requests without a response. Dashed: the limit of the route.",
            one(f"sum by (route) (fleetwright_router_in_flight{{{HERE}}})", legend="{{route}}"),
            one(
                f"sum by (route) (fleetwright_router_in_flight_limit{{{HERE}}})", legend="{{route}} limit", dashed=True
            ),
        ),
        bars("Retries", "Requests that a route failed before the first byte.", increase(_RETRIES, by="route")),
        steps(
            "Weights",
            "Mean weight of each route over the buckets of the table.",
            one(f"avg by (route) (fleetwright_router_weight_ratio{{{HERE}}})", legend="{{route}}"),
            width=6,
        ),
        bars(
            "Loaded tables",
            "Routing tables that routers received, by result.",
            increase("fleetwright_router_table_loads_total", by="result"),
            width=6,
        ),
        durations(
            "Overhead of the router",
            "Router time of a request that need not wait, by percentile.",
            *quantiles("fleetwright_router_overhead_seconds"),
            width=6,
        ),
        durations(
            "Age of the power reading",
            "Age of the guard's reading that limits low-priority prompts.",
            one(f"max(fleetwright_router_watts_age_seconds{{{HERE}}})", legend="age"),
            width=6,
        ),
        lines(
            "Completions",
            "Requests per second that completed in the engines, by workload.",
            highest("fleetwright_workload_completions_rps", by="workload", where=ON_WORKLOAD),
            unit=Unit.PER_SECOND,
            width=12,
        ),
    ]


_LIMIT = 'le="$ttft_slo"'
_RETRIES = "fleetwright_router_retries_total"


def _within_limit(window: str) -> str:
    within = f"sum(rate({TTFT}_bucket{{{HERE}, {_LIMIT}}}[{window}]))"
    return f"{within} / sum(rate({TTFT}_count{{{HERE}}}[{window}]))"


def _cost_of(source: str) -> str:
    return f'max by (target, workload) (fleetwright_target_cost_usd_per_hour{{{ON_WORKLOAD}, source="{source}"}})'
