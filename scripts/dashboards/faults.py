"""Faults dashboard: diagnoses, detection times, quarantined nodes, refusals, remediation and fault monitors.

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

ON_JOB = f'{HERE}, job=~"$job"'


def faults() -> Dashboard:
    return Dashboard(
        uid="fleetwright-faults",
        title="Fleetwright / Faults",
        description="Diagnoses of training jobs, and the nodes that are out of service.",
        variables=[NAMESPACE, choice("job", metric="fleetwright_faults_agents")],
        rows=[
            Row("Now", _now()),
            Row("Diagnoses", _diagnoses()),
            Row("Quarantine", _quarantine()),
            Row("Remediation cases", _cases()),
            Row("Remediation controller", _controller()),
            Row("Fault monitors", _monitors()),
        ],
    )


def _now() -> list[Panel]:
    return [
        stat(
            "Active",
            "Active diagnoses.",
            one(f"sum(max by (class, scope) (fleetwright_faults_active{{{HERE}}})) or vector(0)"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Out of service",
            "Nodes that are out of service because of a diagnosis or an operator.",
            one(f"sum({_nodes('quarantined|probing|cordoned', dry_run='no')})"),
            thresholds={1: Colour.WARN},
        ),
        stat(
            "Breaker",
            "1: too many nodes were suspected together, and no further node is quarantined.",
            one(f"max(fleetwright_quarantine_breaker_open{{{HERE}}})"),
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Diagnosed and in service",
            "Age of the oldest active diagnosis of a node that is still in service.",
            one(f"max(fleetwright_faults_unquarantined_seconds{{{HERE}}})"),
            unit=Unit.SECONDS,
            thresholds={300: Colour.WARN, 900: Colour.BAD},
        ),
        stat(
            "Replays that differ",
            "Bundles that did not give their diagnoses again, over the time range shown.",
            one(f"sum({_differing()}) or vector(0)"),
            thresholds={1: Colour.BAD},
        ),
        stat(
            "Lost agents",
            "Recorders and probers of all jobs that have become silent.",
            one(f"sum(fleetwright_faults_lost_agents{{{ON_JOB}}})", legend="recorders"),
            one(f"sum(fleetwright_faults_lost_probers{{{ON_JOB}}})", legend="probers"),
            thresholds={1: Colour.WARN},
        ),
    ]


def _diagnoses() -> list[Panel]:
    return [
        bars(
            "Reported",
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
            "Bundles replayed",
            "By whether they gave their diagnoses again, bit for bit.",
            increase("fleetwright_faults_bundle_replays_total", by="outcome"),
        ),
    ]


def _quarantine() -> list[Panel]:
    return [
        timeline(
            "Mode",
            "Effect of a decision.",
            one(state("fleetwright_quarantine_mode", "mode", PolicyMode, of="namespace", where=HERE), legend="mode"),
            meanings=mode_meanings(PolicyMode),
            width=24,
            height=4,
        ),
        steps(
            "Nodes by state",
            "Without serving nodes; dashed: simulated by a dry run.",
            one(_nodes("serving", dry_run="no", but=True), legend="{{state}}"),
            one(_nodes("serving", dry_run="yes", but=True), legend="{{state}} (dry run)", dashed=True),
        ),
        bars(
            "Decisions",
            "Decisions of the policy, by kind and dry run.",
            increase(
                "fleetwright_quarantine_decisions_total",
                by="decision, dry_run",
                legend="{{decision}}, dry: {{dry_run}}",
            ),
        ),
        bars(
            "Refusals",
            "Refused quarantines, by guardrail.",
            increase("fleetwright_quarantine_refusals_total", by="guardrail"),
        ),
        durations(
            "Last evaluation",
            "Age of the last evaluation; without evaluations no node leaves or returns to service.",
            one(f"min(fleetwright_quarantine_evaluation_age_seconds{{{HERE}}})"),
            thresholds={120: Colour.WARN},
        ),
    ]


def _cases() -> list[Panel]:
    return [
        steps(
            "Open cases",
            "By state and stage; requested: without --act, or before the first action.",
            highest("fleetwright_remediation_open_cases", by="state, stage"),
        ),
        durations(
            "Oldest case",
            "Age of the oldest open case, by stage.",
            highest("fleetwright_remediation_oldest_case_seconds", by="stage"),
        ),
        steps(
            "Closed cases",
            "By outcome: released after a passed probe, without one, or before any action.",
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
            "Last successful remediation",
            "Time since the last successful reconcile of any controller; without one no node is remediated.",
            one(
                f"time() - max(fleetwright_remediation_last_reconcile_timestamp_seconds{{{HERE}}} > 0)",
                legend="ago",
            ),
            thresholds={60: Colour.WARN},
        ),
        bars(
            "Remediation reconciles",
            "Reconciles of the leader, by outcome.",
            increase("fleetwright_remediation_reconciles_total", by="outcome"),
        ),
        durations(
            "Remediation reconcile duration",
            "By share of reconciles; longer actions continue beside them.",
            *quantiles("fleetwright_remediation_reconcile_duration_seconds"),
        ),
        bars(
            "Actions",
            "Drains, ended workers, probes and hooks, by outcome; a probe is ok for any result.",
            increase("fleetwright_remediation_actions_total", by="action, outcome"),
        ),
        steps(
            "Monitored runs",
            "Training runs that the controller monitors for faults.",
            one(f"sum(fleetwright_remediation_runs_monitored{{{HERE}}})", legend="runs"),
        ),
    ]


def _monitors() -> list[Panel]:
    return [
        steps(
            "Agents",
            "Recorders and probers, and those that have become silent.",
            highest("fleetwright_faults_agents", by="job", where=ON_JOB),
            highest("fleetwright_faults_lost_agents", by="job", legend="{{job}} lost", where=ON_JOB),
            highest("fleetwright_faults_probers", by="job", legend="{{job}} probers", where=ON_JOB),
            highest("fleetwright_faults_lost_probers", by="job", legend="{{job}} probers lost", where=ON_JOB),
        ),
        bars(
            "Diagnosed by monitors",
            "Faults by class and scope, each once; and those that justify isolation.",
            _of_job("diagnoses_total", by="job, class, scope"),
            _of_job("isolations_justified_total", by="job", legend="{{job}} to isolate"),
        ),
        steps(
            "Active in monitors",
            "Active faults of each job.",
            highest("fleetwright_faults_monitor_active", by="job", where=ON_JOB),
        ),
        lines(
            "Observations",
            "Accepted, and skipped because they were malformed, too old or too many.",
            _of_job("observations_total", by="job"),
            _of_job("malformed_observations_total", by="job", legend="{{job}} skipped"),
        ),
        lines(
            "Batches",
            "Bytes of accepted batches, and refused batches by reason.",
            _of_job("batch_bytes_total", by="job", legend="{{job}} bytes"),
            _of_job("refused_batches_total", by="job, reason"),
        ),
        durations(
            "Evaluation duration",
            "By share of evaluations.",
            *quantiles("fleetwright_faults_evaluation_duration_seconds", where=ON_JOB),
        ),
        bars(
            "Failed evaluations",
            "Evaluations that raised an error; a new monitor starts after each.",
            _of_job("evaluation_failures_total", by="job"),
        ),
        bars(
            "Reports and bundles",
            "Reports to the API by outcome (failed ones are retried), and bundles by outcome.",
            _of_job("reports_total", by="job, outcome"),
            _of_job("bundles_total", by="job, outcome", legend="{{job}} {{outcome}} bundles"),
        ),
        durations(
            "Clock skew",
            "The largest corrected skew of a node's clock.",
            highest("fleetwright_faults_clock_skew_seconds", by="job", where=ON_JOB),
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
