"""Panels of the faults dashboard for remediation: the cases, which the API exports, and the controllers."""

from scripts.dashboards.grafana import Colour, Panel, TimeSeries, Unit
from scripts.dashboards.promql import HERE, increase, one, quantiles


def cases() -> list[Panel]:
    return [
        TimeSeries(
            title="Open cases",
            description="By state and stage; requested: without --act, or before the first action.",
            queries=[one(_cases("open_cases", by="state, stage"), legend="{{state}} {{stage}}")],
            steps=True,
        ),
        TimeSeries(
            title="Oldest case",
            description="Age of the oldest open case, by stage.",
            queries=[one(_cases("oldest_case_seconds", by="stage"), legend="{{stage}}")],
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Closed cases",
            description="By outcome: released after a passed probe, without one, or before any action.",
            queries=[one(_cases("closed_cases", by="outcome"), legend="{{outcome}}")],
            steps=True,
        ),
    ]


def controller() -> list[Panel]:
    return [
        TimeSeries(
            title="Leader",
            description="Controllers that hold the lease: one, and none for some seconds after a crash.",
            queries=[one(f"sum(fleetwright_remediation_is_leader{{{HERE}}})", legend="leaders")],
            steps=True,
        ),
        TimeSeries(
            title="Last successful remediation",
            description=(
                "Time since the last successful reconcile of any controller; without one no node is remediated."
            ),
            queries=[
                one(
                    f"time() - max(fleetwright_remediation_last_reconcile_timestamp_seconds{{{HERE}}} > 0)",
                    legend="ago",
                ),
            ],
            unit=Unit.SECONDS,
            thresholds={60: Colour.WARN},
        ),
        TimeSeries(
            title="Remediation reconciles",
            description="Reconciles of the leader, by outcome.",
            queries=[increase("fleetwright_remediation_reconciles_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
        TimeSeries(
            title="Remediation reconcile duration",
            description="By share of reconciles; longer actions continue beside them.",
            queries=quantiles("fleetwright_remediation_reconcile_duration_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Actions",
            description="Drains, ended workers, probes and hooks, by outcome; a probe is ok for any result.",
            queries=[
                increase("fleetwright_remediation_actions_total", by="action, outcome", legend="{{action}} {{outcome}}")
            ],
            bars=True,
        ),
        TimeSeries(
            title="Monitored runs",
            description="Training runs that the controller monitors for faults.",
            queries=[one(f"sum(fleetwright_remediation_runs_monitored{{{HERE}}})", legend="runs")],
            steps=True,
        ),
    ]


def _cases(name: str, *, by: str) -> str:
    return f"max by ({by}) (fleetwright_remediation_{name}{{{HERE}}})"
