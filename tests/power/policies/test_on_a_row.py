"""Policies on a simulated row, for some hours around the peak of a fortnight."""

import pytest

from power.controls import Priority
from power.policies import OWN_ROUTER, policy_named
from power.simulator import Outcome, RowSpec, simulate
from power.slo_impact import latency_impact, slo_holds
from power.workload.generated import generated_work

DAYS, SEED = 0.1, 3
FREE_W = 1e9


def outcome_of(policy: str, *, servers: int, budget_w: float) -> Outcome:
    work = generated_work(servers=servers, days=DAYS, seed=SEED)
    spec = RowSpec(budget_w=budget_w, together=None if policy in OWN_ROUTER else 1)
    return simulate(spec, work, policy=policy_named(policy), seed=SEED, bare=True)


@pytest.fixture(scope="module")
def budget_w() -> float:
    """The budget of which 40 servers use 79 %."""
    return outcome_of("none", servers=40, budget_w=FREE_W).peak_w / 0.79


def test_the_ladder_holds_60_percent_more_servers_where_polca_brakes(budget_w: float) -> None:
    free = outcome_of("none", servers=64, budget_w=FREE_W)
    polca = outcome_of("polca", servers=64, budget_w=budget_w)
    ladder = outcome_of("ladder", servers=64, budget_w=budget_w)
    assert free.peak_w > 1.15 * budget_w
    assert polca.brakes > 0
    assert ladder.brakes == 0
    assert ladder.seconds_over_budget == 0
    impacts = {
        priority: latency_impact(
            uncapped_s=free.requests.latency_s,
            capped_s=ladder.requests.latency_s,
            chosen=free.requests.of(priority),
        )
        for priority in Priority
    }
    assert slo_holds(impacts)


def test_low_priority_prompts_wait_more_often_and_nearly_all_requests_finish(budget_w: float) -> None:
    row = outcome_of("ladder", servers=64, budget_w=budget_w)
    waited_s = row.requests.admission_wait_s
    low, high = (waited_s[row.requests.of(priority)] for priority in (Priority.LOW, Priority.HIGH))
    assert (low > 0).mean() > (high > 0).mean()
    assert row.requests.finished.mean() > 0.98
