"""The dashboard of nodes and GPUs: stock, power against caps, temperature, clocks, energy and memory errors.

Agents report the GPUs of their server; the API reports the nodes that are out of service; the controller reports the
stock of the Kubernetes cluster.
"""

from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    TextBox,
    Unit,
    bars,
    durations,
    lines,
    stat,
    steps,
    table,
)
from scripts.dashboards.promql import HERE, NAMESPACE, choice, increase, one

ON_SERVER = f'{HERE}, server=~"$server"'
HOT_C = 85  # as the alert FleetwrightGpuHot
JOULES_PER_KWH = 3.6e6
DIAGNOSES = Link(title="Diagnoses and quarantine in the console", page="#/health")
SOURCES = ("planned", "applied", "enforced")


def nodes() -> Dashboard:
    return Dashboard(
        uid="fleetwright-nodes",
        title="Fleetwright / Nodes and GPUs",
        description="Power against caps, temperature, clocks, energy and errors of GPUs, and the state of nodes.",
        variables=[
            NAMESPACE,
            choice("server", metric="fleetwright_gpu_up"),
            TextBox(name="usd_per_kwh", label="$ per kWh", default="0.10"),
        ],
        rows=[
            Row("Now", _now()),
            Row("Nodes", _nodes()),
            Row("Stock", _stock()),
            Row("Power and caps", _power()),
            Row("GPUs", _gpus()),
            Row("Errors", _errors()),
        ],
    )


def _now() -> list[Panel]:
    up = f"max by (server, gpu) (fleetwright_gpu_up{{{ON_SERVER}}})"
    energy = f"sum(increase(fleetwright_gpu_energy_joules_total{{{ON_SERVER}}}[$__range])) / {JOULES_PER_KWH:g}"
    return [
        stat("GPUs", "GPUs that respond.", one(f"sum({up})")),
        stat(
            "Lost GPUs",
            "GPUs that do not respond to their agent.",
            one(f"count({up} == 0) or vector(0)"),
            thresholds={1: Colour.BAD},
        ),
        stat("Power", "Board power of all GPUs.", one(f"sum({_of_gpu('power_watts')})"), unit=Unit.WATTS),
        stat(
            "Hottest GPU",
            "Temperature of the hottest die.",
            one(f"max({_of_gpu('temperature_celsius')})"),
            unit=Unit.CELSIUS,
            thresholds={HOT_C - 5: Colour.WARN, HOT_C: Colour.BAD},
        ),
        stat("Energy", "Energy of all GPUs in the selected time range.", one(energy), unit=Unit.KILOWATT_HOURS),
        stat("Cost of energy", "At the price in the box above.", one(f"({energy}) * $usd_per_kwh"), unit=Unit.USD),
    ]


def _nodes() -> list[Panel]:
    by_server = {
        "GPUs": f"count by (server) ({_of_gpu('up')})",
        "responding": f"sum by (server) ({_of_gpu('up')})",
        "watts": f"sum by (server) ({_of_gpu('power_watts')})",
        "hottest": f"max by (server) ({_of_gpu('temperature_celsius')})",
        "utilization": f"avg by (server) ({_of_gpu('utilization_ratio')})",
        "uncorrected": f'max by (server) (fleetwright_gpu_ecc_errors_total{{{ON_SERVER}, kind="uncorrected"}})',
    }
    return [
        table(
            "Servers",
            "GPUs of each server, their power, highest temperature, mean utilization and uncorrected memory errors.",
            *(one(expr, legend=column) for column, expr in by_server.items()),
            width=14,
            height=9,
            link=DIAGNOSES,
        ),
        table(
            "Nodes out of service",
            "State of each node that is suspected, quarantined, probed or cordoned; dry run: only simulated.",
            one(f"max by (node, state, dry_run) (fleetwright_quarantine_node{{{HERE}}})", legend="present"),
            width=10,
            height=9,
            link=DIAGNOSES,
        ),
    ]


def _stock() -> list[Panel]:
    return [
        steps(
            "GPUs of the stock",
            "GPUs that a plan may use, and the others by the reason why it may not.",
            one(f"max by (stock, state) (fleetwright_stock_gpus{{{HERE}}})", legend="{{stock}} {{state}}"),
            width=12,
        ),
        durations(
            "Age of the stock",
            "Time since the observation of the published stock. Dashed: above it, no plan on the stock is applied.",
            one(f"min by (stock) (fleetwright_stock_age_seconds{{{HERE}}})", legend="{{stock}}"),
            one(
                f"min by (stock) (fleetwright_stock_stale_after_seconds{{{HERE}}})",
                legend="{{stock}} limit",
                dashed=True,
            ),
            width=12,
        ),
    ]


def _power() -> list[Panel]:
    return [
        lines(
            "Power of servers",
            "Board power of the GPUs of each server.",
            one(f"namespace_server:fleetwright_gpu_power_watts:sum{{{ON_SERVER}}}", legend="{{server}}"),
            unit=Unit.WATTS,
        ),
        steps(
            "Power against caps",
            "Board power of all GPUs. Dashed: sums of the power limits that are planned, applied and enforced.",
            one(f"sum({_of_gpu('power_watts')})", legend="power"),
            *(_cap("power_cap_watts", source, "sum") for source in SOURCES),
            unit=Unit.WATTS,
        ),
        steps(
            "Clock against locked clocks",
            "Highest clock of any GPU. Dashed: highest locked clock that is planned, applied and enforced.",
            one(f"max({_of_gpu('sm_clock_hertz')})", legend="clock"),
            *(_cap("locked_clock_hertz", source, "max") for source in SOURCES),
            unit=Unit.HERTZ,
        ),
        lines(
            "Energy",
            "Kilowatt-hours per hour of the GPUs of each server.",
            one(
                "sum by (server) (rate(fleetwright_gpu_energy_joules_total"
                f"{{{ON_SERVER}}}[$__rate_interval])) * 3600 / {JOULES_PER_KWH:g}",
                legend="{{server}}",
            ),
        ),
        lines(
            "Cost of energy per hour",
            "At the price in the box above.",
            one(
                "sum by (server) (rate(fleetwright_gpu_energy_joules_total"
                f"{{{ON_SERVER}}}[$__rate_interval])) * 3600 / {JOULES_PER_KWH:g} * $usd_per_kwh",
                legend="{{server}}",
            ),
            unit=Unit.USD,
        ),
        bars(
            "Cap events",
            "Outcomes of writes of power limits and clocks.",
            increase("fleetwright_gpu_cap_events_total", by="cap, event", where=ON_SERVER),
        ),
    ]


def _gpus() -> list[Panel]:
    return [
        lines(
            "Temperature",
            "Hottest and mean temperature of the dies of each server.",
            one(f"max by (server) ({_of_gpu('temperature_celsius')})", legend="{{server}} hottest"),
            one(f"avg by (server) ({_of_gpu('temperature_celsius')})", legend="{{server}} mean"),
            unit=Unit.CELSIUS,
            thresholds={HOT_C: Colour.BAD},
        ),
        lines(
            "Utilization",
            "Share of the time in which anything ran, mean of each server.",
            one(f"avg by (server) ({_of_gpu('utilization_ratio')})", legend="{{server}}"),
            unit=Unit.SHARE,
        ),
        lines(
            "Clocks of GPUs",
            "Mean clock of multiprocessors and memory of each server.",
            one(f"avg by (server) ({_of_gpu('sm_clock_hertz')})", legend="{{server}}"),
            one(f"avg by (server) ({_of_gpu('memory_clock_hertz')})", legend="{{server}} memory"),
            unit=Unit.HERTZ,
        ),
    ]


def _errors() -> list[Panel]:
    return [
        bars(
            "Memory errors",
            "New ECC errors by server; uncorrected errors can change results.",
            increase("fleetwright_gpu_ecc_errors_total", by="server, kind", where=ON_SERVER),
            width=12,
        ),
        steps(
            "Responding GPUs",
            "GPUs of each server that respond to the agent.",
            one(f"sum by (server) ({_of_gpu('up')})", legend="{{server}}"),
            width=12,
            link=DIAGNOSES,
        ),
    ]


def _of_gpu(name: str) -> str:
    return f"max by (server, gpu) (fleetwright_gpu_{name}{{{ON_SERVER}}})"


def _cap(name: str, source: str, over: str) -> Query:
    where = f'{ON_SERVER}, source="{source}"'
    return one(f"{over}(max by (server, gpu) (fleetwright_gpu_{name}{{{where}}}))", legend=source, dashed=True)
