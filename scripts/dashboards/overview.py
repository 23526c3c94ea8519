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
    Unit,
    bars,
    durations,
    lines,
    stat,
    steps,
    timeline,
)
from scripts.dashboards.promql import (
    HERE,
    NAMESPACE,
    choice,
    highest,
    increase,
    meaning,
    mode_meanings,
    one,
    quantile,
    quantiles,
    state,
)

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
        variables=[NAMESPACE, choice("target", metric="fleetwright_target_mode")],
        rows=[
            Row("Now", _now()),
            Row("Planned and applied", _targets()),
            Row("Planning", _planning()),
            Row("Expert placement", _placement()),
            Row("API", _api()),
            Row("Controller", _controller()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "API replicas",
            "Replicas that answer Prometheus.",
            one(f"count(fleetwright_build_info{{{HERE}}}) or vector(0)"),
            thresholds={0: Colour.BAD, 1: Colour.GOOD},
        ),
        stat(
            "Database",
            "Whether every replica reaches the database.",
            one(f"min(fleetwright_database_up{{{HERE}}})"),
            meanings=[
                Meaning(value=0, text="down", colour=Colour.BAD),
                Meaning(value=1, text="up", colour=Colour.GOOD),
            ],
        ),
        stat(
            "Freeze",
            "While it holds, nothing is written to any target.",
            one(f"max(fleetwright_frozen{{{HERE}}})"),
            meanings=[
                Meaning(value=0, text="off", colour=Colour.GOOD),
                Meaning(value=1, text="frozen", colour=Colour.WARN),
            ],
        ),
        stat(
            "Targets off plan",
            "Targets whose last round left changes to be made, or failed.",
            one(f"count(max by (target) ({_phases_off_plan()}) == 1) or vector(0)"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Oldest report",
            "Age of the oldest target status.",
            one(f"max(fleetwright_target_status_age_seconds{{{ON_TARGET}}})"),
            unit=Unit.SECONDS,
            thresholds={STALE_S / 2: Colour.WARN, STALE_S: Colour.BAD},
        ),
        stat(
            "Plans made",
            "Over the whole time range shown.",
            one(f"sum(increase(fleetwright_plans_total{{{HERE}}}[$__range]))"),
        ),
    ]


def _targets() -> list[Panel]:
    return [
        steps(
            "Replicas",
            "Dashed: what the plan in force asks for. Solid: what was seen running in the last report.",
            one(_replicas("planned"), legend="{{target}} {{gpu}} planned", dashed=True),
            one(_replicas("applied"), legend="{{target}} {{gpu}} applied"),
            width=12,
        ),
        steps(
            "Off plan",
            "Planned less applied: above zero some are missing, below zero more run than planned.",
            one(_off_plan(), legend="{{target}} {{gpu}}"),
            width=12,
        ),
        timeline(
            "Phase",
            "Where each target stood after the last round.",
            one(_state("fleetwright_target_phase", "phase", Phase), legend="{{target}}"),
            meanings=[meaning(i, phase, PHASE_COLOURS[phase]) for i, phase in enumerate(Phase)],
        ),
        timeline(
            "Mode",
            "How far the controller may go on each target.",
            one(_state("fleetwright_target_mode", "mode", Mode), legend="{{target}}"),
            meanings=mode_meanings(Mode),
        ),
        durations(
            "Age of reports",
            "Time since the last report on a target; nothing is changed on grounds of stale reports.",
            highest("fleetwright_target_status_age_seconds", by="target", where=ON_TARGET),
            thresholds={STALE_S: Colour.BAD},
        ),
    ]


def _planning() -> list[Panel]:
    return [
        bars("Plans", "Plans made, by outcome.", increase("fleetwright_plans_total", by="status")),
        durations("Solve time", "Time in the solver, by share of plans.", *quantiles("fleetwright_plan_solve_seconds")),
        steps(
            "Catalogue versions",
            "Version of each document in force; 0 is the one that ships with the product.",
            highest("fleetwright_document_version", by="kind"),
        ),
    ]


def _placement() -> list[Panel]:
    return [
        bars(
            "Placements",
            "Placements made, by whether the ceiling asked for was reached.",
            increase("fleetwright_placements_total", by="outcome"),
        ),
        lines(
            "Imbalance and its bound",
            "Fullest GPU over an even share, median of placements; no placement can be below the bound.",
            _median("fleetwright_placement_imbalance", legend="imbalance"),
            _median("fleetwright_placement_bound", legend="bound"),
        ),
        durations(
            "Placement time",
            "Time to place, by share of placements.",
            *quantiles("fleetwright_placement_solve_seconds"),
        ),
    ]


def _api() -> list[Panel]:
    return [
        lines(
            "Requests",
            "Requests answered, by method and route.",
            one(
                f"sum by (method, route) (rate(fleetwright_http_requests_total{{{HERE}}}[$__rate_interval]))",
                legend="{{method}} {{route}}",
            ),
            unit=Unit.PER_SECOND,
            width=6,
        ),
        durations(
            "Time to answer",
            "By share of requests, planning and probes excepted.",
            *quantiles(
                "fleetwright_http_request_duration_seconds", where=f'{HERE}, route!~"/v1/plans|/livez|/readyz|/metrics"'
            ),
            width=6,
        ),
        bars(
            "Refusals and failures",
            "4xx: the caller's doing. 5xx: ours.",
            one(
                "sum by (status, route) (rate("
                f'fleetwright_http_requests_total{{{HERE}, status=~"[45].."}}[$__rate_interval]))',
                legend="{{status}} {{route}}",
            ),
            unit=Unit.PER_SECOND,
            width=6,
        ),
        steps(
            "Audit trail",
            "Entries in all; the trail only ever grows.",
            one(f"max(fleetwright_audit_entries{{{HERE}}})", legend="entries"),
            width=6,
        ),
    ]


def _controller() -> list[Panel]:
    return [
        steps(
            "Leader",
            "Controllers that hold the lease: one, and for some seconds after a crash none.",
            one(f"sum(fleetwright_controller_is_leader{{{HERE}}})", legend="leading"),
        ),
        bars(
            "Rounds", "Rounds completed and failed.", increase("fleetwright_controller_reconciles_total", by="outcome")
        ),
        durations(
            "Time of a round", "By share of rounds.", *quantiles("fleetwright_controller_reconcile_duration_seconds")
        ),
        bars(
            "Writes",
            "Changes written to running applications.",
            increase("fleetwright_controller_writes_total", by="target, kind"),
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
