"""Power metrics: each domain's active budget, and the newest plan at its tightest period."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.core import Metric

from api.schemas.power import PowerBudget
from api.server.power_metrics import PowerState, power_metrics
from power.caps import CapPlan, plan_caps
from tests.power.trees import two_rows

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def shown(state: PowerState) -> dict[str, dict[str, float]]:
    """Metric -> domain -> value."""
    found: list[Metric] = list(power_metrics(state, NOW))
    return {
        one.name: {sample.labels.get("domain") or sample.labels["row"]: sample.value for sample in one.samples}
        for one in found
    }


@pytest.fixture(scope="module")
def plan() -> CapPlan:
    return plan_caps(two_rows(pdu_w=67_500.0, row_w=60_000.0, periods=2))


def test_a_budget_is_exported_with_its_remaining_time_even_after_its_expiry() -> None:
    soon, gone = (PowerBudget(limit_w=9.0, expires_at=NOW + timedelta(minutes=left)) for left in (5, -1))
    found = shown(PowerState(budgets=[("row-1", soon), ("row-2", gone)]))
    assert found["fleetwright_power_domain_budget_watts"] == {"row-1": 9.0, "row-2": 9.0}
    assert found["fleetwright_power_domain_budget_remaining_seconds"] == {"row-1": 300.0, "row-2": -60.0}
    assert found["fleetwright_power_row_expected"] == {}
    assert len(found) == 3  # no plan, no metrics of plans


def test_a_plan_is_exported_at_its_tightest_period(plan: CapPlan) -> None:
    first, second = plan.periods
    (tight,) = (one for one in first.feeds if one.name == "pdu")
    roomy = tight.model_copy(
        update={"limit_w": 90_000.0, "peak_w": 50_000.0, "uncapped_peak_w": 55_000.0, "loss_per_kw": 0.0}
    )
    rest = second.model_copy(update={"feeds": tuple(roomy if one.name == "pdu" else one for one in second.feeds)})
    found = shown(PowerState(plan=plan.model_copy(update={"periods": (rest, first)})))
    pdu = {name.removeprefix("fleetwright_power_domain_"): by.get("pdu") for name, by in found.items()}
    assert tight.limit_w is not None
    assert pdu["limit_watts"] == tight.limit_w == 67_500.0
    assert pdu["uncapped_peak_watts"] == tight.uncapped_peak_w > tight.limit_w
    assert pdu["planned_peak_watts"] == tight.peak_w
    assert pdu["stranded_watts"] == pytest.approx(max(0.0, tight.limit_w - tight.peak_w))
    assert pdu["loss_per_kilowatt"] == tight.loss_per_kw > 0


def test_a_feed_without_a_limit_has_a_peak_and_no_limit(plan: CapPlan) -> None:
    (period, _) = plan.periods
    free = tuple(one.model_copy(update={"limit_w": None}) for one in period.feeds)
    found = shown(PowerState(plan=plan.model_copy(update={"periods": (period.model_copy(update={"feeds": free}),)})))
    assert found["fleetwright_power_domain_limit_watts"] == found["fleetwright_power_domain_stranded_watts"] == {}
    assert found["fleetwright_power_domain_planned_peak_watts"].keys() == {"pdu", "row-1", "row-2"}


def test_rows_with_a_budget_need_a_guard() -> None:
    found = shown(PowerState(guarded_rows=["row-1"]))
    assert found["fleetwright_power_row_expected"] == {"row-1": 1.0}
