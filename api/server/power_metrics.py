"""Exports the power data of the store as metrics: the budgets by domain, the rows that need a guard, and the newest
power plan.

A plan has periods of a day; each metric is of the domain's tightest period.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.power import PowerBudget
from power.caps import CapPlan
from power.caps.result import FeedCaps

LIMIT = "fleetwright_power_domain_limit_watts"
UNCAPPED_PEAK = "fleetwright_power_domain_uncapped_peak_watts"
PLANNED_PEAK = "fleetwright_power_domain_planned_peak_watts"
STRANDED = "fleetwright_power_domain_stranded_watts"
LOSS_PER_KILOWATT = "fleetwright_power_domain_loss_per_kilowatt"


@dataclass(frozen=True, slots=True)
class PowerState:
    budgets: Sequence[tuple[str, PowerBudget]] = ()
    plan: CapPlan | None = None
    guarded_rows: Sequence[str] = ()  # of the stored trees; a budget is stored for each


def power_metrics(state: PowerState, at: datetime) -> Iterable[Metric]:
    yield from _budgets(state.budgets, at)
    expected = GaugeMetricFamily(
        "fleetwright_power_row_expected",
        "1 for a row of a stored power tree for which a budget is stored, expired or not: it needs a guard.",
        labels=["row"],
    )
    for row in state.guarded_rows:
        expected.add_metric([row], 1)
    yield expected
    if state.plan is not None and state.plan.periods:
        yield from _plan(state.plan)


def _budgets(budgets: Sequence[tuple[str, PowerBudget]], at: datetime) -> Iterable[Metric]:
    watts = GaugeMetricFamily("fleetwright_power_domain_budget_watts", "Newest budget of a domain.", labels=["domain"])
    remaining = GaugeMetricFamily(
        "fleetwright_power_domain_budget_remaining_seconds",
        "Time until a domain's budget expires; negative after its expiry.",
        labels=["domain"],
    )
    for domain, budget in budgets:
        watts.add_metric([domain], budget.limit_w)
        remaining.add_metric([domain], (budget.expires_at - at).total_seconds())
    yield from (watts, remaining)


def _plan(plan: CapPlan) -> Iterable[Metric]:
    gauges = {
        name: GaugeMetricFamily(name, text, labels=["domain"])
        for name, text in (
            (LIMIT, "What a domain can carry, in its tightest period."),
            (UNCAPPED_PEAK, "Peak at full clock and the plan's risk, in the highest period."),
            (PLANNED_PEAK, "Peak at the planned clocks and risk, in the highest period."),
            (STRANDED, "Power left unused in the fullest period."),
            (LOSS_PER_KILOWATT, "Loss that one more kW would save, in the dearest period."),
        )
    }
    by_domain: dict[str, list[FeedCaps]] = {}
    for period in plan.periods:
        for feed in period.feeds:
            by_domain.setdefault(feed.name, []).append(feed)
    for domain, feeds in by_domain.items():
        limits = [feed.limit_w for feed in feeds if feed.limit_w is not None]
        if limits:
            gauges[LIMIT].add_metric([domain], min(limits))
            left_w = min(feed.limit_w - feed.peak_w for feed in feeds if feed.limit_w is not None)
            gauges[STRANDED].add_metric([domain], max(0.0, left_w))
        gauges[UNCAPPED_PEAK].add_metric([domain], max(feed.uncapped_peak_w for feed in feeds))
        gauges[PLANNED_PEAK].add_metric([domain], max(feed.peak_w for feed in feeds))
        gauges[LOSS_PER_KILOWATT].add_metric([domain], max(feed.loss_per_kw for feed in feeds))
    yield from gauges.values()
