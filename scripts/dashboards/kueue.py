"""The part of the power dashboard about jobs of Kueue that the power check admits to rows."""

from scripts.dashboards.grafana import Colour, Panel, Unit, bars, durations, steps
from scripts.dashboards.promql import HERE, increase, one, quantiles

ON_ROW = f'{HERE}, row=~"$row"'


def kueue_jobs() -> list[Panel]:
    return [
        steps(
            "Power of jobs",
            "Watts of the admitted jobs of each row. Dashed: the smallest limit of the row and the domains above it.",
            one(f"max by (row) (fleetwright_kueue_power_jobs_watts{{{ON_ROW}}})", legend="{{row}}"),
            one(
                f"max by (row) (fleetwright_kueue_power_limit_watts{{{ON_ROW}}})",
                legend="{{row}} limit",
                dashed=True,
            ),
            unit=Unit.WATTS,
        ),
        steps(
            "Jobs that wait for power",
            "Jobs that fit into the quota of Kueue, but not into the free watts of a row.",
            one(f"max(fleetwright_kueue_power_waiting_jobs{{{HERE}}})", legend="jobs"),
        ),
        bars(
            "Decisions about jobs",
            "Admitted, held: too few watts are free, rejected, or unmeasured: the watts of the job are not known.",
            increase("fleetwright_kueue_power_decisions_total", by="decision"),
        ),
        steps(
            "Power check leader",
            "Power checks that hold the lease: one, and none for some seconds after a crash.",
            one(f"sum(fleetwright_kueue_power_is_leader{{{HERE}}})", legend="leaders"),
            width=6,
        ),
        durations(
            "Last successful check",
            "Time since the last successful reconcile of any power check; without reconciles no job is admitted.",
            one(
                f"time() - max(fleetwright_kueue_power_last_reconcile_timestamp_seconds{{{HERE}}} > 0)",
                legend="age",
            ),
            thresholds={60: Colour.WARN},
            width=6,
        ),
        bars(
            "Reconciles of the power check",
            "Reconciles of the leader, by outcome.",
            increase("fleetwright_kueue_power_reconciles_total", by="outcome"),
            width=6,
        ),
        durations(
            "Duration of power checks",
            "Duration of a reconcile, by percentile.",
            *quantiles("fleetwright_kueue_power_reconcile_duration_seconds"),
            width=6,
        ),
    ]
