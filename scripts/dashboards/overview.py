"""The overview: is the service well, and does every target run as planned?

Every API replica exports the same state of the fleet, hence `max` over replicas; counters are summed over them.
One namespace, that is one release, at a time; Prometheus without that label offers the empty one, which matches.
"""

from collections.abc import Iterable
from enum import StrEnum

from api.schemas.targets import Mode, Phase
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Meaning,
    Panel,
    Query,
    Row,
    Stat,
    StateTimeline,
    TimeSeries,
    Unit,
    Variable,
)
from scripts.dashboards.promql import HERE, increase, meaning, mode_meanings, one, quantile, quantiles, state

ON_TARGET = f'{HERE}, target=~"$target"'
STALE_S = 120.0  # as the alert FleetwrightTargetStale

PHASE_COLOURS = {
    Phase.OBSERVED: Colour.CALM,
    Phase.RECOMMENDED: Colour.ODD,
    Phase.SETTLING: Colour.ODD,
    Phase.AWAITING_APPROVAL: Colour.ODD,
    Phase.APPLYING: Colour.WARN,
    Phase.APPLIED: Colour.GOOD,
    Phase.ROLLING_BACK: Colour.WARN,
    Phase.ROLLED_BACK: Colour.BAD,
    Phase.FROZEN: Colour.OFF,
    Phase.FAILED: Colour.BAD,
}


def overview() -> Dashboard:
    return Dashboard(
        uid="fleetwright-overview",
        title="Fleetwright / Overview",
        description="Planned and applied side by side, and the health of the service that keeps them together.",
        variables=[
            Variable(name="namespace", label="Namespace", query="label_values(fleetwright_build_info, namespace)"),
            Variable(
                name="target",
                label="Target",
                query=f"label_values(fleetwright_target_mode{{{HERE}}}, target)",
                all_values=True,
            ),
        ],
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Planned and applied", panels=_targets()),
            Row(title="Planning", panels=_planning()),
            Row(title="Expert placement", panels=_placement()),
            Row(title="API", panels=_api()),
            Row(title="Controller", panels=_controller()),
        ],
    )


def _now() -> list[Panel]:
    return [
        Stat(
            title="API replicas",
            description="Replicas that answer Prometheus.",
            queries=[one(f"count(fleetwright_build_info{{{HERE}}}) or vector(0)")],
            thresholds={0: Colour.BAD, 1: Colour.GOOD},
        ),
        Stat(
            title="Database",
            description="Whether every replica reaches the database.",
            queries=[one(f"min(fleetwright_database_up{{{HERE}}})")],
            meanings=[
                Meaning(value=0, text="down", colour=Colour.BAD),
                Meaning(value=1, text="up", colour=Colour.GOOD),
            ],
        ),
        Stat(
            title="Freeze",
            description="While it holds, nothing is written to any target.",
            queries=[one(f"max(fleetwright_frozen{{{HERE}}})")],
            meanings=[
                Meaning(value=0, text="off", colour=Colour.GOOD),
                Meaning(value=1, text="frozen", colour=Colour.WARN),
            ],
        ),
        Stat(
            title="Targets off plan",
            description="Targets whose last round left changes to be made, or failed.",
            queries=[one(f"count(max by (target) ({_phases_off_plan()}) == 1) or vector(0)")],
            thresholds={1: Colour.WARN},
        ),
        Stat(
            title="Oldest report",
            description="Age of the oldest target status.",
            queries=[one(f"max(fleetwright_target_status_age_seconds{{{ON_TARGET}}})")],
            unit=Unit.SECONDS,
            thresholds={STALE_S / 2: Colour.WARN, STALE_S: Colour.BAD},
        ),
        Stat(
            title="Plans made",
            description="Over the whole time range shown.",
            queries=[one(f"sum(increase(fleetwright_plans_total{{{HERE}}}[$__range]))")],
        ),
    ]


def _targets() -> list[Panel]:
    return [
        TimeSeries(
            title="Replicas",
            description="Dashed: what the plan in force asks for. Solid: what was seen running in the last report.",
            queries=[
                Query(expr=_replicas("planned"), legend="{{target}} {{gpu}} planned", dashed=True),
                Query(expr=_replicas("applied"), legend="{{target}} {{gpu}} applied"),
            ],
            steps=True,
            width=12,
        ),
        TimeSeries(
            title="Off plan",
            description="Planned less applied: above zero some are missing, below zero more run than planned.",
            queries=[Query(expr=_off_plan(), legend="{{target}} {{gpu}}")],
            steps=True,
            width=12,
        ),
        StateTimeline(
            title="Phase",
            description="Where each target stood after the last round.",
            queries=[Query(expr=_state("fleetwright_target_phase", "phase", Phase), legend="{{target}}")],
            meanings=[meaning(i, phase, PHASE_COLOURS[phase]) for i, phase in enumerate(Phase)],
        ),
        StateTimeline(
            title="Mode",
            description="How far the controller may go on each target.",
            queries=[Query(expr=_state("fleetwright_target_mode", "mode", Mode), legend="{{target}}")],
            meanings=mode_meanings(Mode),
        ),
        TimeSeries(
            title="Age of reports",
            description="Time since the last report on a target; nothing is changed on grounds of stale reports.",
            queries=[
                Query(
                    expr=f"max by (target) (fleetwright_target_status_age_seconds{{{ON_TARGET}}})", legend="{{target}}"
                )
            ],
            unit=Unit.SECONDS,
            thresholds={STALE_S: Colour.BAD},
        ),
    ]


def _planning() -> list[Panel]:
    return [
        TimeSeries(
            title="Plans",
            description="Plans made, by outcome.",
            queries=[increase("fleetwright_plans_total", by="status", legend="{{status}}")],
            bars=True,
        ),
        TimeSeries(
            title="Solve time",
            description="Time in the solver, by share of plans.",
            queries=quantiles("fleetwright_plan_solve_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Catalogue versions",
            description="Version of each document in force; 0 is the one that ships with the product.",
            queries=[Query(expr=f"max by (kind) (fleetwright_document_version{{{HERE}}})", legend="{{kind}}")],
            steps=True,
        ),
    ]


def _placement() -> list[Panel]:
    return [
        TimeSeries(
            title="Placements",
            description="Placements made, by whether the ceiling asked for was reached.",
            queries=[increase("fleetwright_placements_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
        TimeSeries(
            title="Imbalance and its bound",
            description="Fullest GPU over an even share, median of placements; no placement can be below the bound.",
            queries=[
                _median("fleetwright_placement_imbalance", legend="imbalance"),
                _median("fleetwright_placement_bound", legend="bound"),
            ],
        ),
        TimeSeries(
            title="Placement time",
            description="Time to place, by share of placements.",
            queries=quantiles("fleetwright_placement_solve_seconds"),
            unit=Unit.SECONDS,
        ),
    ]


def _api() -> list[Panel]:
    return [
        TimeSeries(
            title="Requests",
            description="Requests answered, by method and route.",
            queries=[
                Query(
                    expr=f"sum by (method, route) (rate(fleetwright_http_requests_total{{{HERE}}}[$__rate_interval]))",
                    legend="{{method}} {{route}}",
                )
            ],
            unit=Unit.PER_SECOND,
            width=6,
        ),
        TimeSeries(
            title="Time to answer",
            description="By share of requests, planning and probes excepted.",
            queries=quantiles(
                "fleetwright_http_request_duration_seconds", where=f'{HERE}, route!~"/v1/plans|/livez|/readyz|/metrics"'
            ),
            unit=Unit.SECONDS,
            width=6,
        ),
        TimeSeries(
            title="Refusals and failures",
            description="4xx: the caller's doing. 5xx: ours.",
            queries=[
                Query(
                    expr="sum by (status, route) (rate("
                    f'fleetwright_http_requests_total{{{HERE}, status=~"[45].."}}[$__rate_interval]))',
                    legend="{{status}} {{route}}",
                )
            ],
            unit=Unit.PER_SECOND,
            bars=True,
            width=6,
        ),
        TimeSeries(
            title="Audit trail",
            description="Entries in all; the trail only ever grows.",
            queries=[one(f"max(fleetwright_audit_entries{{{HERE}}})", legend="entries")],
            steps=True,
            width=6,
        ),
    ]


def _controller() -> list[Panel]:
    return [
        TimeSeries(
            title="Leader",
            description="Controllers that hold the lease: one, and for some seconds after a crash none.",
            queries=[one(f"sum(fleetwright_controller_is_leader{{{HERE}}})", legend="leading")],
            steps=True,
        ),
        TimeSeries(
            title="Rounds",
            description="Rounds completed and failed.",
            queries=[increase("fleetwright_controller_reconciles_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
        TimeSeries(
            title="Time of a round",
            description="By share of rounds.",
            queries=quantiles("fleetwright_controller_reconcile_duration_seconds"),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Writes",
            description="Changes written to running applications.",
            queries=[increase("fleetwright_controller_writes_total", by="target, kind", legend="{{target}} {{kind}}")],
            bars=True,
        ),
    ]


def _replicas(which: str) -> str:
    return f"max by (target, gpu) (fleetwright_target_replicas_{which}{{{ON_TARGET}}})"


def _off_plan() -> str:
    """Planned less applied, where a GPU type that one side does not name counts as none of it."""
    planned, applied = _replicas("planned"), _replicas("applied")
    return f"({planned} or {applied} * 0) - ({applied} or {planned} * 0)"


def _phases_off_plan() -> str:
    phases = "|".join(phase for phase in Phase if phase not in (Phase.OBSERVED, Phase.APPLIED))
    return f'fleetwright_target_phase{{{ON_TARGET}, phase=~"{phases}"}}'


def _median(metric: str, *, legend: str) -> Query:
    return one(quantile(0.5, metric), legend=legend)


def _state(metric: str, label: str, states: Iterable[StrEnum]) -> str:
    return state(metric, label, states, of="target", where=ON_TARGET)
