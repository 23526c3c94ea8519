"""The faults dashboard: diagnoses, detection times, quarantine, remediation, health events and fault monitors.

Fault monitors export the metrics of their jobs, the API those of diagnoses, bundles, quarantine and cases.
"""

from faults.quarantine import PolicyMode
from scripts.dashboards.grafana import (
    Colour,
    Dashboard,
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
    mode_meanings,
    one,
    quantile,
    quantiles,
    state,
)

ON_JOB = f'{HERE}, training_job=~"$training_job"'


def faults() -> Dashboard:
    return Dashboard(
        uid="fleetwright-faults",
        title="Fleetwright / Faults",
        description="Diagnoses of training jobs, and the nodes that are out of service.",
        variables=[NAMESPACE, choice("training_job", metric="fleetwright_faults_agents")],
        rows=[
            Row("Now", _now()),
            Row("Diagnoses", _diagnoses()),
            Row("Quarantine", _quarantine()),
            Row("Remediation cases", _cases()),
            Row("Remediation controller", _controller()),
            Row("Health events", _health_events()),
            Row("Fault monitors", _monitors()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Active diagnoses",
            "Active diagnoses of all jobs.",
            one(f"sum(max by (class, scope) (fleetwright_faults_active{{{HERE}}})) or vector(0)"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Nodes out of service",
            "Nodes that the quarantine policy or an operator took out of service.",
            one(f"sum({_nodes('quarantined|probing|cordoned', dry_run='no')})"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Circuit breaker",
            "1: open. Too many nodes were suspected at the same time, and no further node is quarantined.",
            one(f"max(fleetwright_quarantine_breaker_open{{{HERE}}})"),
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Oldest unhandled diagnosis",
            "Age of the oldest active diagnosis that justifies a quarantine while its node is still in service.",
            one(f"max(fleetwright_faults_unquarantined_seconds{{{HERE}}})"),
            unit=Unit.SECONDS,
            thresholds={300: Colour.WARN, 900: Colour.BAD},
        ),
        stat(
            "Differing replays",
            "Replays of bundles that gave other diagnoses, in the selected time range.",
            one(f"sum({_differing()}) or vector(0)"),
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Silent recorders",
            "Recorders and probers of all jobs that no longer send observations.",
            one(f"sum(fleetwright_faults_lost_agents{{{ON_JOB}}})", legend="recorders"),
            one(f"sum(fleetwright_faults_lost_probers{{{ON_JOB}}})", legend="probers"),
            thresholds={1: Colour.WARN},
        ),
    ]


def _diagnoses() -> list[Panel]:
    return [
        bars(
            "Reported diagnoses",
            "Diagnoses reported to the API, by class and scope.",
            increase("fleetwright_faults_reported_total", by="class, scope"),
        ),
        durations(
            "Time to detect",
            "Time from the onset of a fault to its diagnosis, 95th percentile by class.",
            one(quantile(0.95, "fleetwright_faults_detection_seconds", by="class"), legend="{{class}}"),
            thresholds={5: Colour.WARN, 30: Colour.BAD},
        ),
        bars(
            "Bundle replays",
            "By whether the replay gave the same diagnoses, bit for bit.",
            increase("fleetwright_faults_bundle_replays_total", by="outcome"),
        ),
    ]


def _quarantine() -> list[Panel]:
    return [
        timeline(
            "Quarantine mode",
            "Observe: dry run. Recommend: an operator approves each decision. Apply: decisions take effect.",
            one(state("fleetwright_quarantine_mode", "mode", PolicyMode, of="namespace", where=HERE), legend="mode"),
            meanings=mode_meanings(PolicyMode),
            width=24,
            height=4,
        ),
        steps(
            "Nodes by state",
            "Without nodes in service. Dashed: states in a dry run.",
            one(_nodes("serving", dry_run="no", but=True), legend="{{state}}"),
            one(_nodes("serving", dry_run="yes", but=True), legend="{{state}} (dry run)", dashed=True),
        ),
        bars(
            "Decisions",
            "Decisions of the quarantine policy, by kind and dry run.",
            increase(
                "fleetwright_quarantine_decisions_total",
                by="decision, dry_run",
                legend="{{decision}}, dry run: {{dry_run}}",
            ),
        ),
        bars(
            "Refused quarantines",
            "Quarantines that a guardrail refused, by guardrail.",
            increase("fleetwright_quarantine_refusals_total", by="guardrail"),
        ),
        durations(
            "Last policy evaluation",
            "Age of the last evaluation; without evaluations no node leaves service or returns to it.",
            one(f"min(fleetwright_quarantine_evaluation_age_seconds{{{HERE}}})"),
            thresholds={120: Colour.WARN},
        ),
    ]


def _cases() -> list[Panel]:
    return [
        steps(
            "Open cases",
            "By state of the node and stage of the case. Requested: no action yet, or a controller without --act.",
            highest("fleetwright_remediation_open_cases", by="state, stage"),
        ),
        durations(
            "Oldest case",
            "Age of the oldest open case, by stage.",
            highest("fleetwright_remediation_oldest_case_seconds", by="stage"),
        ),
        steps(
            "Closed cases",
            "Cases by outcome: the node was released after a passed probe, without a probe, or before any action.",
            highest("fleetwright_remediation_closed_cases", by="outcome"),
        ),
    ]


def _controller() -> list[Panel]:
    return [
        steps(
            "Leader",
            "Controllers that hold the lease: one, and none for some seconds after a crash.",
            one(f"sum(fleetwright_remediation_is_leader{{{HERE}}})", legend="leaders"),
        ),
        durations(
            "Last successful reconcile",
            "Time since the last successful reconcile of any controller; without reconciles no node is remediated.",
            one(
                f"time() - max(fleetwright_remediation_last_reconcile_timestamp_seconds{{{HERE}}} > 0)",
                legend="age",
            ),
            thresholds={60: Colour.WARN},
        ),
        bars(
            "Reconciles",
            "Reconciles of the leader, by outcome.",
            increase("fleetwright_remediation_reconciles_total", by="outcome"),
        ),
        durations(
            "Reconcile duration",
            "By percentile; actions that take longer continue in the background.",
            *quantiles("fleetwright_remediation_reconcile_duration_seconds"),
        ),
        bars(
            "Actions",
            "Drains, ended workers, probes and hooks, by outcome. A probe that ran is ok, whatever its result.",
            increase("fleetwright_remediation_actions_total", by="action, outcome"),
        ),
        steps(
            "Monitored runs",
            "Training runs that the controller monitors for faults.",
            one(f"sum(fleetwright_remediation_runs_monitored{{{HERE}}})", legend="runs"),
        ),
    ]


def _health_events() -> list[Panel]:
    return [
        steps(
            "Forwarding leader",
            "Forwarders that hold the lease: one, and none for some seconds after a crash.",
            one(f"sum(fleetwright_health_events_is_leader{{{HERE}}})", legend="leaders"),
        ),
        durations(
            "Last successful forwarding",
            "Time since the last reconcile without a failure; meanwhile decisions may not have reached every system.",
            one(
                f"time() - max(fleetwright_health_events_last_reconcile_timestamp_seconds{{{HERE}}} > 0)",
                legend="age",
            ),
            thresholds={120: Colour.WARN},
        ),
        bars(
            "Delivery attempts",
            "By system and outcome. Held: another owner has the node. Unreachable and refused events are retried.",
            increase("fleetwright_health_events_attempts_total", by="outlet, outcome"),
        ),
        steps(
            "Newest events by state",
            "Nodes and switches per system. Requested: the forwarder runs without --act.",
            highest("fleetwright_health_events_components", by="outlet, state"),
        ),
        bars(
            "Forwarding reconciles",
            "Reconciles of the leader, by outcome.",
            increase("fleetwright_health_events_reconciles_total", by="outcome"),
        ),
        durations(
            "Forwarding duration",
            "Duration of a reconcile, by percentile.",
            *quantiles("fleetwright_health_events_reconcile_duration_seconds"),
        ),
    ]


def _monitors() -> list[Panel]:
    return [
        steps(
            "Recorders and probers",
            "Recorders and probers of each job, and those that no longer send observations.",
            highest("fleetwright_faults_agents", by="training_job", legend="{{training_job}} recorders", where=ON_JOB),
            highest(
                "fleetwright_faults_lost_agents",
                by="training_job",
                legend="{{training_job}} recorders silent",
                where=ON_JOB,
            ),
            highest("fleetwright_faults_probers", by="training_job", legend="{{training_job}} probers", where=ON_JOB),
            highest(
                "fleetwright_faults_lost_probers",
                by="training_job",
                legend="{{training_job}} probers silent",
                where=ON_JOB,
            ),
        ),
        bars(
            "Diagnoses of monitors",
            "Diagnoses by class and scope, each counted once, and those that justify a quarantine.",
            _of_job("diagnoses_total", by="training_job, class, scope"),
            _of_job("quarantines_justified_total", by="training_job", legend="{{training_job}} justify a quarantine"),
        ),
        steps(
            "Active faults of monitors",
            "Active faults of each job, as its monitor diagnoses them.",
            highest("fleetwright_faults_monitor_active", by="training_job", where=ON_JOB),
        ),
        lines(
            "Observations",
            "Accepted observations, and observations skipped because they were malformed, too old or too many.",
            _of_job("observations_total", by="training_job"),
            _of_job("malformed_observations_total", by="training_job", legend="{{training_job}} skipped"),
        ),
        lines(
            "Batches",
            "Bytes of accepted batches, and refused batches by reason.",
            _of_job("batch_bytes_total", by="training_job", legend="{{training_job}} bytes"),
            _of_job("refused_batches_total", by="training_job, reason"),
        ),
        durations(
            "Evaluation duration",
            "Duration of a monitor's evaluation, by percentile.",
            *quantiles("fleetwright_faults_evaluation_duration_seconds", where=ON_JOB),
        ),
        bars(
            "Failed evaluations",
            "Evaluations that raised an error; the monitor then restarts with an empty state.",
            _of_job("evaluation_failures_total", by="training_job"),
        ),
        bars(
            "Reports and bundles",
            "Reports to the API by outcome (failed reports are retried), and bundles by outcome.",
            _of_job("reports_total", by="training_job, outcome"),
            _of_job("bundles_total", by="training_job, outcome", legend="{{training_job}} {{outcome}} bundles"),
        ),
        durations(
            "Clock skew",
            "Largest offset of a node's clock that the monitor corrected.",
            highest("fleetwright_faults_clock_skew_seconds", by="training_job", where=ON_JOB),
        ),
    ]


def _nodes(states: str, *, dry_run: str, but: bool = False) -> str:
    """Every replica of the API exports the same values."""
    sign = "!~" if but else "=~"
    where = f'{HERE}, state{sign}"{states}", dry_run="{dry_run}"'
    return f"max by (state) (fleetwright_quarantine_nodes{{{where}}})"


def _differing() -> str:
    return f'increase(fleetwright_faults_bundle_replays_total{{{HERE}, outcome="differs"}}[$__range])'


def _of_job(name: str, *, by: str, legend: str = "") -> Query:
    return increase(f"fleetwright_faults_{name}", by=by, legend=legend, where=ON_JOB)
