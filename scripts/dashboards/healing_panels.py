"""Panels of the faults dashboard on healing: the cases, which the service tells of, and who works on them."""

from scripts.dashboards.grafana import Colour, Panel, TimeSeries, Unit
from scripts.dashboards.promql import HERE, increase, one, quantiles


def cases() -> list[Panel]:
    """What is open, for how long, and how the rest ended."""
    return [
        TimeSeries(
            title="Open cases",
            description="Nodes that are healed, by phase; wanted: the healer only says what it would do.",
            queries=[one(_cases("open_cases", by="phase"), legend="{{phase}}")],
            steps=True,
        ),
        TimeSeries(
            title="Oldest case",
            description="Since the oldest open case of each phase was opened.",
            queries=[one(_cases("oldest_case_seconds", by="phase"), legend="{{phase}}")],
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Closed cases",
            description="By outcome: released after a probe that passed, without one, or before anything was done.",
            queries=[one(_cases("closed_cases", by="outcome"), legend="{{outcome}}")],
            steps=True,
        ),
    ]


def healer() -> list[Panel]:
    """Whether somebody looks, how the rounds go, and what was done."""
    return [
        TimeSeries(
            title="Leading healer",
            description="Healers that hold the lease: one, and for some seconds after a crash none.",
            queries=[one(f"sum(fleetwright_healer_leads{{{HERE}}})", legend="leading")],
            steps=True,
        ),
        TimeSeries(
            title="Last good round of the healer",
            description="Since a round of any healer last went well; without rounds no node is healed.",
            queries=[
                one(f"time() - max(fleetwright_healer_last_round_timestamp_seconds{{{HERE}}} > 0)", legend="ago"),
            ],
            unit=Unit.SECONDS,
            thresholds={60: Colour.WARN},
        ),
        TimeSeries(
            title="Rounds of the healer",
            description="Rounds of the leader that went well, and that failed.",
            queries=[increase("fleetwright_healer_rounds_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
        TimeSeries(
            title="Time of a healing round",
            description="By share of rounds; acts that take long go on beside them.",
            queries=quantiles("fleetwright_healer_round_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Acts",
            description="Drains, ends of workers, probes and hooks, and failed ones; a probe is ok whatever it found.",
            queries=[increase("fleetwright_healer_acts_total", by="act, outcome", legend="{{act}} {{outcome}}")],
            bars=True,
        ),
        TimeSeries(
            title="Runs under watch",
            description="Training runs that the healer watches for faults.",
            queries=[one(f"sum(fleetwright_healer_runs_watched{{{HERE}}})", legend="runs")],
            steps=True,
        ),
    ]


def _cases(name: str, *, by: str) -> str:
    return f"max by ({by}) (fleetwright_healing_{name}{{{HERE}}})"
