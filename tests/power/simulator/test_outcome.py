"""Figures that sum up a run, against their definitions."""

import numpy as np
import pytest

from bench.power_rows import first_token_s, largest_rise
from power.controls import Priority
from power.policies import policy_named
from power.simulator import RowSpec, simulate
from power.whatif.request import POLCA_PEAK_SHARE
from power.workload.generated import generated_work
from tests.power.simulator.rows import SMALL, uncapped, work_of

WORK = work_of([(at * 1.3, at % 2, 900, 60) for at in range(80)])
SPEC = RowSpec(budget_w=4000.0, model=SMALL)


@pytest.mark.parametrize("over_s", [2.0, 10.0, 40.0])
def test_the_largest_rise_is_the_maximum_over_pairs_of_readings(over_s: float) -> None:
    outcome = uncapped(SPEC, WORK, seed=2)
    readings, most = outcome.readings_w, round(over_s / 2)
    rises = [readings[j] - readings[i] for i in range(len(readings)) for j in range(i, len(readings)) if j - i <= most]
    assert largest_rise(outcome, over_s) * outcome.budget_w == pytest.approx(max(rises))


def test_time_over_the_budget_counts_windows_above_it() -> None:
    outcome = simulate(SPEC, WORK, policy=policy_named("none"), bare=True)
    assert outcome.seconds_over_budget == 2.0 * sum(watts > SPEC.budget_w for watts in outcome.readings_w) > 0
    assert outcome.peak_utilization == outcome.peak_w / SPEC.budget_w > 1


def test_requests_are_ordered_by_pool_and_arrival() -> None:
    requests = uncapped(SPEC, WORK).requests
    assert np.all(np.diff(requests.pool) >= 0)
    assert all(np.all(np.diff(requests.arrival_s[requests.pool == pool]) >= 0) for pool in (0, 1))
    assert requests.of(Priority.HIGH).tolist() == (requests.pool == 1).tolist()
    finished = requests.finished
    parts = requests.wait_s[finished] + (requests.first_s - requests.start_s)[finished]
    assert first_token_s(requests)[finished] == pytest.approx(parts)


def test_a_row_of_the_published_mix_matches_the_published_figures() -> None:
    """Shares of the budget as POLCA publishes them: 9 % in 2 s (arXiv 2308.12908); about 5.3 kW for a server."""
    work = generated_work(servers=40, days=0.5, seed=0)
    outcome = uncapped(RowSpec(budget_w=1.0), work)
    budget_w = outcome.peak_w / POLCA_PEAK_SHARE
    assert budget_w / 40 == pytest.approx(5300, rel=0.05)
    assert largest_rise(outcome, 2.0) * outcome.budget_w / budget_w == pytest.approx(0.09, abs=0.03)
