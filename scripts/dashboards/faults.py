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
    Stat,
    StateTimeline,
    TimeSeries,
    Unit,
    Variable,
)
from scripts.dashboards.promql import HERE, increase, mode_meanings, one, quantile, quantiles, state
from scripts.dashboards.remediation_panels import cases, controller

ON_JOB = f'{HERE}, job=~"$job"'


def faults() -> Dashboard:
    return Dashboard(
        uid="fleetwright-faults",
        title="Fleetwright / Faults",
        description="Diagnoses of training jobs, and the nodes that are out of service.",
        variables=[
            Variable(name="namespace", label="Namespace", query="label_values(fleetwright_build_info, namespace)"),
            Variable(
                name="job",
                label="Job",
                query=f"label_values(fleetwright_faults_agents{{{HERE}}}, job)",
                all_values=True,
            ),
        ],
        rows=[
            Row(title="Now", panels=_now()),
            Row(title="Diagnoses", panels=_diagnoses()),
            Row(title="Quarantine", panels=_quarantine()),
            Row(title="Remediation cases", panels=cases()),
            Row(title="Remediation controller", panels=controller()),
            Row(title="Fault monitors", panels=_monitors()),
        ],
    )


def _now() -> list[Panel]:
    return [
        Stat(
            title="Active",
            description="Active diagnoses.",
            queries=[one(f"sum(max by (class, scope) (fleetwright_faults_active{{{HERE}}})) or vector(0)")],
            thresholds={1: Colour.WARN},
        ),
        Stat(
            title="Out of service",
            description="Nodes that are out of service because of a diagnosis or an operator.",
            queries=[one(f"sum({_nodes('quarantined|probing|cordoned', dry_run='no')})")],
            thresholds={1: Colour.WARN},
        ),
        Stat(
            title="Breaker",
            description="1: too many nodes were suspected together, and no further node is quarantined.",
            queries=[one(f"max(fleetwright_quarantine_breaker_open{{{HERE}}})")],
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Diagnosed and in service",
            description="Age of the oldest active diagnosis of a node that is still in service.",
            queries=[one(f"max(fleetwright_faults_unquarantined_seconds{{{HERE}}})")],
            unit=Unit.SECONDS,
            thresholds={300: Colour.WARN, 900: Colour.BAD},
        ),
        Stat(
            title="Replays that differ",
            description="Bundles that did not give their diagnoses again, over the time range shown.",
            queries=[
                one(f"sum({_differing()}) or vector(0)"),
            ],
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Lost agents",
            description="Recorders and probers of all jobs that have become silent.",
            queries=[
                one(f"sum(fleetwright_faults_lost_agents{{{ON_JOB}}})", legend="recorders"),
                one(f"sum(fleetwright_faults_lost_probers{{{ON_JOB}}})", legend="probers"),
            ],
            thresholds={1: Colour.WARN},
        ),
    ]


def _diagnoses() -> list[Panel]:
    return [
        TimeSeries(
            title="Reported",
            description="Diagnoses reported to the API, by class and scope.",
            queries=[increase("fleetwright_faults_reported_total", by="class, scope", legend="{{class}} {{scope}}")],
            bars=True,
        ),
        TimeSeries(
            title="Time to detect",
            description="Time from the onset of a fault to its diagnosis, 95th percentile by class.",
            queries=[
                one(quantile(0.95, "fleetwright_faults_detection_seconds", by="class"), legend="{{class}}"),
            ],
            unit=Unit.SECONDS,
            thresholds={5: Colour.WARN, 30: Colour.BAD},
        ),
        TimeSeries(
            title="Bundles replayed",
            description="By whether they gave their diagnoses again, bit for bit.",
            queries=[increase("fleetwright_faults_bundle_replays_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
    ]


def _quarantine() -> list[Panel]:
    return [
        StateTimeline(
            title="Mode",
            description="Effect of a decision.",
            queries=[
                one(state("fleetwright_quarantine_mode", "mode", PolicyMode, of="namespace", where=HERE), legend="mode")
            ],
            meanings=mode_meanings(PolicyMode),
            width=24,
            height=4,
        ),
        TimeSeries(
            title="Nodes by state",
            description="Without serving nodes; dashed: simulated by a dry run.",
            queries=[
                Query(expr=_nodes("serving", dry_run="no", but=True), legend="{{state}}"),
                Query(expr=_nodes("serving", dry_run="yes", but=True), legend="{{state}} (dry run)", dashed=True),
            ],
            steps=True,
        ),
        TimeSeries(
            title="Decisions",
            description="Decisions of the policy, by kind and dry run.",
            queries=[
                increase(
                    "fleetwright_quarantine_decisions_total",
                    by="decision, dry_run",
                    legend="{{decision}}, dry: {{dry_run}}",
                )
            ],
            bars=True,
        ),
        TimeSeries(
            title="Refusals",
            description="Refused quarantines, by guardrail.",
            queries=[increase("fleetwright_quarantine_refusals_total", by="guardrail", legend="{{guardrail}}")],
            bars=True,
        ),
        TimeSeries(
            title="Last evaluation",
            description="Age of the last evaluation; without evaluations no node leaves or returns to service.",
            queries=[one(f"min(fleetwright_quarantine_evaluation_age_seconds{{{HERE}}})")],
            unit=Unit.SECONDS,
            thresholds={120: Colour.WARN},
        ),
    ]


def _monitors() -> list[Panel]:
    return [
        TimeSeries(
            title="Agents",
            description="Recorders and probers, and those that have become silent.",
            queries=[
                one(f"max by (job) (fleetwright_faults_agents{{{ON_JOB}}})", legend="{{job}}"),
                one(f"max by (job) (fleetwright_faults_lost_agents{{{ON_JOB}}})", legend="{{job}} lost"),
                one(f"max by (job) (fleetwright_faults_probers{{{ON_JOB}}})", legend="{{job}} probers"),
                one(f"max by (job) (fleetwright_faults_lost_probers{{{ON_JOB}}})", legend="{{job}} probers lost"),
            ],
            steps=True,
        ),
        TimeSeries(
            title="Diagnosed by monitors",
            description="Faults by class and scope, each once; and those that justify isolation.",
            queries=[
                _of_job("diagnoses_total", by="job, class, scope", legend="{{job}} {{class}} {{scope}}"),
                _of_job("isolations_justified_total", by="job", legend="{{job}} to isolate"),
            ],
            bars=True,
        ),
        TimeSeries(
            title="Active in monitors",
            description="Active faults of each job.",
            queries=[one(f"max by (job) (fleetwright_faults_monitor_active{{{ON_JOB}}})", legend="{{job}}")],
            steps=True,
        ),
        TimeSeries(
            title="Observations",
            description="Accepted, and skipped because they were malformed, too old or too many.",
            queries=[
                _of_job("observations_total", by="job", legend="{{job}}"),
                _of_job("malformed_observations_total", by="job", legend="{{job}} skipped"),
            ],
        ),
        TimeSeries(
            title="Batches",
            description="Bytes of accepted batches, and refused batches by reason.",
            queries=[
                _of_job("batch_bytes_total", by="job", legend="{{job}} bytes"),
                _of_job("refused_batches_total", by="job, reason", legend="{{job}} {{reason}}"),
            ],
        ),
        TimeSeries(
            title="Evaluation duration",
            description="By share of evaluations.",
            queries=quantiles("fleetwright_faults_evaluation_duration_seconds", where=ON_JOB),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Failed evaluations",
            description="Evaluations that raised an error; a new monitor starts after each.",
            queries=[_of_job("evaluation_failures_total", by="job", legend="{{job}}")],
            bars=True,
        ),
        TimeSeries(
            title="Reports and bundles",
            description="Reports to the API by outcome (failed ones are retried), and bundles by outcome.",
            queries=[
                _of_job("reports_total", by="job, outcome", legend="{{job}} {{outcome}}"),
                _of_job("bundles_total", by="job, outcome", legend="{{job}} {{outcome}} bundles"),
            ],
            bars=True,
        ),
        TimeSeries(
            title="Clock skew",
            description="The largest corrected skew of a node's clock.",
            queries=[one(f"max by (job) (fleetwright_faults_clock_skew_seconds{{{ON_JOB}}})", legend="{{job}}")],
            unit=Unit.SECONDS,
        ),
    ]


def _nodes(states: str, *, dry_run: str, but: bool = False) -> str:
    """Every replica of the API exports the same values."""
    sign = "!~" if but else "=~"
    where = f'{HERE}, state{sign}"{states}", dry_run="{dry_run}"'
    return f"max by (state) (fleetwright_quarantine_nodes{{{where}}})"


def _differing() -> str:
    return f'increase(fleetwright_faults_bundle_replays_total{{{HERE}, outcome="differs"}}[$__range])'


def _of_job(name: str, *, by: str, legend: str) -> Query:
    return increase(f"fleetwright_faults_{name}", by=by, legend=legend, where=ON_JOB)
