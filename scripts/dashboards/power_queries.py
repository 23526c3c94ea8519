"""Queries of the power panels: rows as reported by guards, domains of the power tree as reported by the API."""

from power.policies.thresholds import T1, T2
from scripts.dashboards.grafana import Colour
from scripts.dashboards.promql import HERE

ON_ROW = f'{HERE}, row=~"$row"'
BUSY = {0.0: Colour.CALM, 0.5: Colour.GOOD, T1: Colour.ODD, T2: Colour.WARN, 1.0: Colour.BAD}


def of_row(name: str) -> str:
    return f"max by (row) (fleetwright_{name}{{{ON_ROW}}})"


def of_domain(name: str) -> str:
    """Return a metric of each domain; every replica of the API reports the same."""
    return f"max by (domain) (fleetwright_power_domain_{name}{{{HERE}}})"


def forecast(horizon: str, share: str, *, ago: str = "") -> str:
    where = f'{ON_ROW}, horizon="{horizon}", quantile="{share}"'
    offset = f" offset {ago}" if ago else ""
    return f"max by (row) (fleetwright_row_power_forecast_watts{{{where}}}{offset})"


def held() -> str:
    """Return the coverage: the highest reading of 40 s against its forecast; only pairs count."""
    highest = f"max by (row) (max_over_time(fleetwright_row_power_watts{{{ON_ROW}}}[40s]))"
    return f"avg_over_time(({highest} <= bool {forecast('40s', '0.999', ago='40s')})[1h:10s])"


def headroom_servers() -> str:
    """(budget - highest reading) / (highest reading / servers)."""
    highest = f"max by (row) (max_over_time(fleetwright_row_power_watts{{{ON_ROW}}}[1d]))"
    servers = f'count by (row) (fleetwright_power_cap_watts{{{ON_ROW}, source="applied"}})'
    return f"floor(({of_row('row_power_budget_watts')} - {highest}) * {servers} / {highest})"


def off_cap() -> str:
    """Count the servers whose enforced cap differs from the commanded one by more than a watt."""
    applied, enforced = (
        f'max by (row, server) (fleetwright_power_cap_watts{{{ON_ROW}, source="{source}"}})'
        for source in ("applied", "enforced")
    )
    return f"sum by (row) (abs({applied} - {enforced}) > bool 1)"
