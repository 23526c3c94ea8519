"""Faults: what is said to be wrong, how fast it was named, which nodes are out for it, what says no, and what heals.

Watchers tell of their jobs, the service of verdicts, bundles, isolation and healing, a healer of its rounds.
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
from scripts.dashboards.healing_panels import cases, healer
from scripts.dashboards.promql import HERE, increase, mode_meanings, one, quantile, quantiles, state

ON_JOB = f'{HERE}, job=~"$job"'


def faults() -> Dashboard:
    """The dashboard."""
    return Dashboard(
        uid="fleetwright-faults",
        title="Fleetwright / Faults",
        description="Verdicts on collective traffic, and the nodes that are out for them.",
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
            Row(title="Verdicts", panels=_diagnoses()),
            Row(title="Isolation", panels=_isolation()),
            Row(title="Healing", panels=cases()),
            Row(title="Healer", panels=healer()),
            Row(title="Watchers", panels=_watchers()),
        ],
    )


def _now() -> list[Panel]:
    return [
        Stat(
            title="Believed",
            description="Verdicts that are believed now.",
            queries=[one(f"sum(max by (class, scope) (fleetwright_fault_verdicts_believed{{{HERE}}})) or vector(0)")],
            thresholds={1: Colour.WARN},
        ),
        Stat(
            title="Out",
            description="Nodes that take no work because of a verdict or an operator.",
            queries=[one(f"sum({_nodes('isolated|probing|kept-out', dry_run='no')})")],
            thresholds={1: Colour.WARN},
        ),
        Stat(
            title="Breaker",
            description="1: too many nodes were accused together, and nothing more is isolated.",
            queries=[one(f"max(fleetwright_isolation_breaker_open{{{HERE}}})")],
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Accused and in service",
            description="Since the oldest believed verdict against a node that is still in service.",
            queries=[one(f"max(fleetwright_fault_unisolated_seconds{{{HERE}}})")],
            unit=Unit.SECONDS,
            thresholds={300: Colour.WARN, 900: Colour.BAD},
        ),
        Stat(
            title="Replays that differ",
            description="Bundles that did not give their verdicts again, over the time range shown.",
            queries=[
                one(f"sum({_differing()}) or vector(0)"),
            ],
            thresholds={1: Colour.BAD},
        ),
        Stat(
            title="Lost agents",
            description="Recorders that were heard and are not any more, of all jobs; and probers.",
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
            description="Verdicts that came to the service, by class and scope.",
            queries=[increase("fleetwright_fault_reports_total", by="class, scope", legend="{{class}} {{scope}}")],
            bars=True,
        ),
        TimeSeries(
            title="Time to detect",
            description="From the onset of a fault to its verdict, 95th percentile by class.",
            queries=[
                one(quantile(0.95, "fleetwright_fault_detection_seconds", by="class"), legend="{{class}}"),
            ],
            unit=Unit.SECONDS,
            thresholds={5: Colour.WARN, 30: Colour.BAD},
        ),
        TimeSeries(
            title="Bundles replayed",
            description="By whether they gave their verdicts again, bit for bit.",
            queries=[increase("fleetwright_fault_replays_total", by="outcome", legend="{{outcome}}")],
            bars=True,
        ),
    ]


def _isolation() -> list[Panel]:
    return [
        StateTimeline(
            title="Mode",
            description="How far a decision goes.",
            queries=[
                one(state("fleetwright_isolation_mode", "mode", PolicyMode, of="namespace", where=HERE), legend="mode")
            ],
            meanings=mode_meanings(PolicyMode),
            width=24,
            height=4,
        ),
        TimeSeries(
            title="Nodes by standing",
            description="Those that serve are left out; dashed: only said to be so, in a dry run.",
            queries=[
                Query(expr=_nodes("serving", dry_run="no", but=True), legend="{{standing}}"),
                Query(expr=_nodes("serving", dry_run="yes", but=True), legend="{{standing}} (dry run)", dashed=True),
            ],
            steps=True,
        ),
        TimeSeries(
            title="Decisions",
            description="Of the policy, by act and whether it was a dry run.",
            queries=[
                increase("fleetwright_isolation_decisions_total", by="act, dry_run", legend="{{act}}, dry: {{dry_run}}")
            ],
            bars=True,
        ),
        TimeSeries(
            title="Refusals",
            description="Nodes that stayed, by the rule that said no.",
            queries=[increase("fleetwright_isolation_refusals_total", by="rule", legend="{{rule}}")],
            bars=True,
        ),
        TimeSeries(
            title="Last look",
            description="Age of the last look at the fleet; without looks nothing goes and nothing comes back.",
            queries=[one(f"min(fleetwright_isolation_look_age_seconds{{{HERE}}})")],
            unit=Unit.SECONDS,
            thresholds={120: Colour.WARN},
        ),
    ]


def _watchers() -> list[Panel]:
    return [
        TimeSeries(
            title="Agents",
            description="Recorders heard, and those that are not any more; the same of probers.",
            queries=[
                one(f"max by (job) (fleetwright_faults_agents{{{ON_JOB}}})", legend="{{job}}"),
                one(f"max by (job) (fleetwright_faults_lost_agents{{{ON_JOB}}})", legend="{{job}} lost"),
                one(f"max by (job) (fleetwright_faults_probers{{{ON_JOB}}})", legend="{{job}} probers"),
                one(f"max by (job) (fleetwright_faults_lost_probers{{{ON_JOB}}})", legend="{{job}} probers lost"),
            ],
            steps=True,
        ),
        TimeSeries(
            title="Found by watchers",
            description="Faults by class and scope, each once; and those that would justify an isolation.",
            queries=[
                _of_job("verdicts_total", by="job, class, scope", legend="{{job}} {{class}} {{scope}}"),
                _of_job("isolations_recommended_total", by="job", legend="{{job}} to isolate"),
            ],
            bars=True,
        ),
        TimeSeries(
            title="Believed by watchers",
            description="Faults that a job's watcher believes now.",
            queries=[one(f"max by (job) (fleetwright_faults_believed{{{ON_JOB}}})", legend="{{job}}")],
            steps=True,
        ),
        TimeSeries(
            title="Observations",
            description="Taken in, and left out because they were malformed, too old or too many.",
            queries=[
                _of_job("observations_total", by="job", legend="{{job}}"),
                _of_job("malformed_total", by="job", legend="{{job}} left out"),
            ],
        ),
        TimeSeries(
            title="Batches",
            description="Bytes taken, and batches refused by reason.",
            queries=[
                _of_job("batch_bytes_total", by="job", legend="{{job}} bytes"),
                _of_job("refused_batches_total", by="job, reason", legend="{{job}} {{reason}}"),
            ],
        ),
        TimeSeries(
            title="Time to judge",
            description="Of taking in what came and judging.",
            queries=quantiles("fleetwright_faults_decision_seconds", where=ON_JOB),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Failed judgements",
            description="Judgements that raised; after each a new watcher begins.",
            queries=[_of_job("judge_failures_total", by="job", legend="{{job}}")],
            bars=True,
        ),
        TimeSeries(
            title="Reports and bundles",
            description="What came of reports to the service (failed ones are tried again) and of bundles.",
            queries=[
                _of_job("reports_total", by="job, outcome", legend="{{job}} {{outcome}}"),
                _of_job("bundles_total", by="job, outcome", legend="{{job}} {{outcome}} bundles"),
            ],
            bars=True,
        ),
        TimeSeries(
            title="Clock skew",
            description="The largest skew of a node's clock that is corrected.",
            queries=[one(f"max by (job) (fleetwright_faults_clock_skew_seconds{{{ON_JOB}}})", legend="{{job}}")],
            unit=Unit.SECONDS,
        ),
    ]


def _nodes(standings: str, *, dry_run: str, but: bool = False) -> str:
    """Every replica of the service tells the same."""
    sign = "!~" if but else "=~"
    where = f'{HERE}, standing{sign}"{standings}", dry_run="{dry_run}"'
    return f"max by (standing) (fleetwright_isolation_nodes{{{where}}})"


def _differing() -> str:
    return f'increase(fleetwright_fault_replays_total{{{HERE}, outcome="differs"}}[$__range])'


def _of_job(name: str, *, by: str, legend: str) -> Query:
    return increase(f"fleetwright_faults_{name}", by=by, legend=legend, where=ON_JOB)
