"""The overview: health of the service, and whether every target runs as planned.

Every API replica exports the same state of the fleet, hence `max` over replicas; counters are summed over them.
It shows one namespace, thus one release, at a time.  If Prometheus sets no label `namespace`, the empty value matches.
"""

from collections.abc import Iterable
from enum import StrEnum
from math import inf

from api.schemas.targets import Mode, Phase
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
    Link,
    Meaning,
    Panel,
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
from scripts.dashboards.service import api, objectives, processes

TARGET_PAGE = Link(title="Target in the console", page="#/targets/${__field.labels.target}")
ON_TARGET = f'{HERE}, target=~"$target"'
STALE_S = 120.0  # as the alert FleetwrightTargetStale
WAITING_S = 600.0  # as the alert FleetwrightJobsWait

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
        description="Planned and applied replicas of every target, and the health of the API and the controller.",
        variables=[NAMESPACE, choice("target", metric="fleetwright_target_mode")],
        rows=[
            Row("Now", _now()),
            Row("Planned and applied", _targets()),
            Row("Planning", _planning()),
            Row("Jobs", _jobs()),
            Row("Objectives", objectives()),
            Row("API", api()),
            Row("Processes of the service", processes()),
            Row("Controller", _controller()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "API replicas",
            "Replicas that respond to Prometheus.",
            one(f"count(fleetwright_database_up{{{HERE}}}) or vector(0)"),
            thresholds={-inf: Colour.BAD, 1: Colour.GOOD},
        ),
        stat(
            "Database",
            "Up: every API replica reads from the database and writes to it.",
            one(f"min(fleetwright_database_up{{{HERE}}}) + min(fleetwright_database_writable{{{HERE}}})"),
            meanings=[
                Meaning(value=0, text="down", colour=Colour.BAD),
                Meaning(value=1, text="no writes", colour=Colour.BAD),
                Meaning(value=2, text="up", colour=Colour.GOOD),
            ],
        ),
        stat(
            "Freeze",
            "While frozen, the controller writes to no target.",
            one(f"max(fleetwright_frozen{{{HERE}}})"),
            meanings=[
                Meaning(value=0, text="off", colour=Colour.GOOD),
                Meaning(value=1, text="frozen", colour=Colour.WARN),
            ],
        ),
        stat(
            "Targets not as planned",
            "Targets whose last reconcile failed or left changes pending.",
            one(f"count(max by (target) ({_phases_off_plan()}) == 1) or vector(0)"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Oldest target status",
            "Time since the last report on the target with the oldest status.",
            one(f"max(fleetwright_target_status_age_seconds{{{ON_TARGET}}})"),
            unit=Unit.SECONDS,
            thresholds={STALE_S / 2: Colour.WARN, STALE_S: Colour.BAD},
        ),
        stat(
            "Plans created",
            "In the selected time range.",
            one(f"sum(increase(fleetwright_plans_total{{{HERE}}}[$__range]))"),
        ),
    ]


def _targets() -> list[Panel]:
    return [
        steps(
            "Replicas",
            "Dashed: replicas of the plan in force. Solid: running replicas in the last report.",
            one(_replicas("planned"), legend="{{target}} {{gpu}} planned", dashed=True),
            one(_replicas("applied"), legend="{{target}} {{gpu}} applied"),
            width=12,
        ),
        steps(
            "Planned minus applied",
            "Above zero: replicas are missing. Below zero: more replicas run than planned.",
            one(_off_plan(), legend="{{target}} {{gpu}}"),
            width=12,
            link=TARGET_PAGE,
        ),
        timeline(
            "Phase",
            "Phase of each target after its last reconcile.",
            one(_state("fleetwright_target_phase", "phase", Phase), legend="{{target}}"),
            link=TARGET_PAGE,
            meanings=[meaning(i, phase, PHASE_COLOURS[phase]) for i, phase in enumerate(Phase)],
        ),
        timeline(
            "Mode",
            "What the controller may do: observe the target, recommend changes, or apply them.",
            one(_state("fleetwright_target_mode", "mode", Mode), legend="{{target}}"),
            meanings=mode_meanings(Mode),
        ),
        durations(
            "Age of target status",
            "Time since the last report on each target.",
            highest("fleetwright_target_status_age_seconds", by="target", where=ON_TARGET),
            thresholds={STALE_S: Colour.BAD},
        ),
        steps(
            "Replicas wanted by autoscalers",
            "Counts that external autoscalers read, of targets in mode recommend.",
            one(_replicas("wanted"), legend="{{target}} {{gpu}}"),
            width=12,
        ),
        durations(
            "Age of the wanted replicas",
            "Time since a reconcile last confirmed them; they stay while reconciles fail and during a freeze.",
            highest("fleetwright_target_wanted_age_seconds", by="target", where=ON_TARGET),
            thresholds={STALE_S: Colour.BAD},
            width=12,
        ),
    ]


def _planning() -> list[Panel]:
    return [
        bars("Plans", "Created plans, by status.", increase("fleetwright_plans_total", by="status")),
        durations("Solve time", "Solver time of plans, by percentile.", *quantiles("fleetwright_plan_solve_seconds")),
        steps(
            "Document versions",
            "Version in force of each stored document; 0 is the built-in version.",
            highest("fleetwright_document_version", by="kind"),
        ),
    ]


def _jobs() -> list[Panel]:
    return [
        steps(
            "Waiting jobs",
            "Jobs that wait for a worker, by lane.",
            highest("fleetwright_jobs_queued", by="lane"),
            width=6,
        ),
        durations(
            "Oldest waiting job",
            "Age of the oldest job that waits for a worker, by lane.",
            highest("fleetwright_jobs_oldest_queued_seconds", by="lane"),
            thresholds={WAITING_S: Colour.BAD},
            width=6,
        ),
        steps(
            "Workers",
            "Workers that are alive.",
            one(f"max(fleetwright_workers{{{HERE}}})", legend="workers"),
            width=6,
        ),
        bars(
            "Lost workers",
            "Workers whose beats stood still; their jobs start again elsewhere.",
            one(f"sum(increase(fleetwright_workers_lost_total{{{HERE}}}[$__rate_interval]))", legend="lost"),
            width=6,
        ),
        bars(
            "Ended jobs",
            "By kind and outcome; an outcome other than `succeeded` names the failure.",
            increase("fleetwright_jobs_total", by="kind, outcome"),
            width=6,
        ),
        lines(
            "Running jobs",
            "Jobs that workers run now, by lane.",
            one(f"sum by (lane) (fleetwright_jobs_running{{{HERE}}})", legend="{{lane}}"),
            width=6,
        ),
        durations(
            "Wait for a worker",
            "Time from acceptance to start, 95 %.",
            one(quantile(0.95, "fleetwright_job_wait_seconds", by="lane"), legend="{{lane}}"),
            width=6,
        ),
        durations(
            "Run time",
            "Time from start to end, 95 %.",
            one(quantile(0.95, "fleetwright_job_run_seconds", by="kind"), legend="{{kind}}"),
            width=6,
        ),
        lines(
            "Processor time of jobs",
            "Cores in use, by kind.",
            one(
                f"sum by (kind) (rate(fleetwright_job_cpu_seconds_total{{{HERE}}}[$__rate_interval]))",
                legend="{{kind}}",
            ),
        ),
    ]


def _controller() -> list[Panel]:
    return [
        steps(
            "Leader",
            "Controllers that hold the lease: one, and none for some seconds after a crash.",
            one(f"sum(fleetwright_controller_is_leader{{{HERE}}})", legend="leaders"),
        ),
        bars(
            "Reconciles",
            "Reconciles of the leader, by outcome.",
            increase("fleetwright_controller_reconciles_total", by="outcome"),
        ),
        durations(
            "Reconcile duration", "By percentile.", *quantiles("fleetwright_controller_reconcile_duration_seconds")
        ),
        bars(
            "Writes",
            "Changes that the controller wrote to running applications, by target and kind.",
            one(
                f"sum by (target, kind) (increase(fleetwright_controller_writes_total{{{HERE}}}[$__rate_interval]))"
                " or vector(0)",
                legend="{{target}} {{kind}}",
            ),
        ),
    ]


def _replicas(which: str) -> str:
    return f"max by (target, gpu) (fleetwright_target_replicas_{which}{{{ON_TARGET}}})"


def _off_plan() -> str:
    """Planned minus applied replicas; a GPU type that one side lacks counts as zero there."""
    planned, applied = _replicas("planned"), _replicas("applied")
    return f"({planned} or {applied} * 0) - ({applied} or {planned} * 0)"


def _phases_off_plan() -> str:
    phases = "|".join(phase for phase in Phase if phase not in (Phase.OBSERVED, Phase.APPLIED))
    return f'fleetwright_target_phase{{{ON_TARGET}, phase=~"{phases}"}}'


def _state(metric: str, label: str, states: Iterable[StrEnum]) -> str:
    return state(metric, label, states, of="target", where=ON_TARGET)
