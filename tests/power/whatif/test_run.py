"""What-if runs: the budget, the uncapped run, and consistent figures."""

from itertools import count

import numpy as np
import pytest

from fleet.documents import RuleError
from power.simulator import IgnoredActuation, PlannerKilled, StaleTelemetry
from power.whatif.cost_estimate import expected_requests
from power.whatif.record import envelope
from power.whatif.request import FaultName, PolicyName, RowRequest
from power.whatif.run import WhatIfRun, chosen_fault, provisioned_w, run_whatif, steepest_s, worst_minute_s
from power.workload import Sources

SMALL = RowRequest(servers=14, budget_servers=8, days=0.0625, seed=3, policy=PolicyName.POLCA)


def what_if(request: RowRequest) -> WhatIfRun:
    ticks = count()
    return run_whatif(request, clock_s=lambda: float(next(ticks)))


@pytest.fixture(scope="module")
def polca() -> WhatIfRun:
    return what_if(SMALL)


class TestResponse:
    def test_the_budget_is_the_uncapped_peak_divided_by_the_peak_share(self) -> None:
        same = SMALL.model_copy(update={"servers": 8, "policy": PolicyName.NONE})
        found = what_if(same).response
        assert found.budget_w == provisioned_w(same, Sources())
        assert found.peak_utilization == pytest.approx(0.79)
        assert found.uncapped.peak_utilization == found.peak_utilization

    def test_the_budget_ignores_the_training_share(self) -> None:
        training = SMALL.model_copy(update={"training_share": 0.5})
        assert provisioned_w(training, Sources()) == provisioned_w(SMALL, Sources())
        half = SMALL.model_copy(update={"peak_share": 0.395})
        assert provisioned_w(half, Sources()) == pytest.approx(2 * provisioned_w(SMALL, Sources()))

    def test_a_row_without_caps_has_no_impact(self) -> None:
        free = what_if(SMALL.model_copy(update={"policy": PolicyName.NONE, "budget_w": 1e6})).response
        for impact in (free.slo.high, free.slo.low):
            assert (impact.p50, impact.p99, impact.unfinished) == (0.0, 0.0, 0)
        assert (free.brakes, free.slo_held, free.events) == (0, True, ())
        assert free.energy_kwh == free.uncapped.energy_kwh

    def test_figures_are_consistent(self, polca: WhatIfRun) -> None:
        response, record = polca.response, polca.record
        assert response.peak_utilization == record.row_w.max() / record.budget_w
        assert response.seconds_over_budget == 2.0 * np.count_nonzero(record.row_w > record.budget_w)
        assert response.energy_kwh == pytest.approx(record.row_w.sum() * record.step_s / 3.6e6)
        assert response.brakes == len(record.brakes_s) == [event.what for event in response.events].count("brake")
        assert record.duration_s == response.duration_s == pytest.approx(5400)
        assert response.slo.high.requests + response.slo.low.requests <= response.requests
        assert (response.run_s, response.total_s) == (1.0, 2.0)  # by the given clock

    def test_the_profile_covers_the_power_of_the_row(self, polca: WhatIfRun) -> None:
        profile, row_w = polca.response.profile, polca.record.row_w
        assert max(profile.max_w) == row_w.max()
        assert len(profile.mean_w) == len(profile.max_w) <= 480
        assert all(mean <= most for mean, most in zip(profile.mean_w, profile.max_w, strict=True))

    def test_a_budget_that_is_too_small_brakes_and_breaks_the_objectives(self) -> None:
        tight = what_if(SMALL.model_copy(update={"budget_w": 40_000.0})).response
        assert tight.brakes > 0
        assert not tight.slo_held
        assert tight.energy_kwh < tight.uncapped.energy_kwh

    def test_assumptions_are_reported(self) -> None:
        scenario = SMALL.model_copy(update={"decode_sensitivity": 0.25, "together": 3, "policy": PolicyName.LADDER})
        assumptions = what_if(scenario).response.assumptions
        assert (
            assumptions.token_sensitivity,
            assumptions.together,
            assumptions.uncapped_together,
            assumptions.guarded,
        ) == (0.25, 3, 3, True)
        assert assumptions.command_delay_s < 40

    @pytest.mark.parametrize(("policy", "together"), [(PolicyName.POLCA, 1), (PolicyName.LADDER, 6)])
    def test_only_policies_with_their_own_router_batch_requests(self, policy: PolicyName, together: int) -> None:
        scenario = SMALL.model_copy(update={"policy": policy, "days": 0.02})
        assumptions = what_if(scenario).response.assumptions
        assert (assumptions.together, assumptions.uncapped_together) == (together, 1)

    def test_a_batch_above_the_memory_limit_is_refused(self) -> None:
        with pytest.raises(RuleError, match="together: must be at most 6"):
            what_if(SMALL.model_copy(update={"together": 8}))

    def test_a_row_with_fewer_servers_than_request_kinds_is_refused(self) -> None:
        with pytest.raises(RuleError, match="servers: must be at least 4"):
            what_if(SMALL.model_copy(update={"servers": 3}))


class TestGuard:
    @pytest.mark.parametrize(
        ("policy", "fault", "guard", "guarded"),
        [
            (PolicyName.POLCA, None, None, False),
            (PolicyName.LADDER, None, None, True),
            (PolicyName.POLCA, FaultName.PLANNER_KILLED, None, True),
            (PolicyName.LADDER, FaultName.PLANNER_KILLED, False, False),
            (PolicyName.NONE, None, True, True),
        ],
    )
    def test_the_guard_runs_with_the_ladder_or_a_fault_by_default(
        self, policy: PolicyName, fault: FaultName | None, *, guard: bool | None, guarded: bool
    ) -> None:
        assert RowRequest(servers=8, policy=policy, fault=fault, guard=guard).guarded is guarded

    def test_a_stopped_planner_lets_the_budget_expire(self) -> None:
        scenario = SMALL.model_copy(update={"policy": PolicyName.LADDER, "fault": FaultName.PLANNER_KILLED})
        found = what_if(scenario)
        assert found.record.fault_s is not None
        killed_s, end_s = found.record.fault_s
        assert end_s == found.record.duration_s
        expirations = [event for event in found.response.events if "budget-expired" in event.what]
        assert bool(expirations) == (end_s - killed_s > 180)  # validity of the last budget
        assert all(event.at_s > killed_s for event in expirations)


class TestFaults:
    ROW = np.concatenate([np.full(200, 100.0), np.linspace(100, 200, 40), np.full(60, 180.0), np.full(100, 90.0)])

    def test_no_fault_is_chosen_by_default(self) -> None:
        assert chosen_fault(SMALL, uncapped_w=self.ROW) is None

    def test_the_worst_minute_has_the_highest_mean(self) -> None:
        start = round(worst_minute_s(self.ROW) / 2)
        best = max(range(len(self.ROW) - 29), key=lambda first: self.ROW[first : first + 30].mean())
        assert self.ROW[start : start + 30].mean() == self.ROW[best : best + 30].mean()

    def test_the_steepest_rise_is_found(self) -> None:
        row = np.full(200, 100.0)
        row[57:] += 30.0
        assert steepest_s(row, over_s=10.0, after_s=80.0) in {2.0 * first for first in range(52, 57)}
        assert steepest_s(row[:3], over_s=10.0, after_s=0.0) == 0.0

    @pytest.mark.parametrize(
        ("fault", "fault_s", "kind", "length_s"),
        [
            (FaultName.PLANNER_KILLED, None, PlannerKilled, None),
            (FaultName.PLANNER_KILLED, 30.0, PlannerKilled, 30.0),
            (FaultName.STALE_TELEMETRY, None, StaleTelemetry, 10.0),
            (FaultName.STALE_TELEMETRY, 60.0, StaleTelemetry, 60.0),
            (FaultName.IGNORED_ACTUATION, None, IgnoredActuation, 800.0),
        ],
    )
    def test_each_fault_lasts_for_its_duration(
        self, fault: FaultName, fault_s: float | None, kind: type, length_s: float | None
    ) -> None:
        scenario = SMALL.model_copy(update={"fault": fault, "fault_s": fault_s})
        found = chosen_fault(scenario, uncapped_w=self.ROW)
        assert found is not None
        made, (from_s, to_s) = found
        assert isinstance(made, kind)
        assert (made.model_dump()["from_s"], made.model_dump()["to_s"]) == (from_s, to_s)
        assert to_s - from_s == (800.0 - from_s if length_s is None else length_s)


@pytest.mark.parametrize("readings", [1, 7, 480, 481, 1000])
def test_an_envelope_covers_every_reading(readings: int) -> None:
    row = np.random.default_rng(readings).random(readings)
    found = envelope(row, step_s=2.0, max_points=480)
    assert len(found.at_s) <= 480
    assert (found.low_w.min(), found.high_w.max()) == (row.min(), row.max())
    per = round(found.step_s / 2)
    sizes = np.diff(np.append(np.arange(0, readings, per), readings))
    assert (found.mean_w * sizes).sum() == pytest.approx(row.sum())
    assert np.all((found.low_w <= found.mean_w) & (found.mean_w <= found.high_w + 1e-12))


class TestCostEstimate:
    def test_the_estimate_is_close_to_the_generated_requests(self) -> None:
        made = what_if(SMALL.model_copy(update={"policy": PolicyName.NONE, "days": 0.25, "budget_w": 1e6})).response
        most = expected_requests(SMALL.model_copy(update={"days": 0.25, "budget_w": 1e6}), Sources())
        assert 0.3 * most < made.requests < 1.1 * most

    def test_servers_without_service_time_have_an_unbounded_estimate(self) -> None:
        quick = SMALL.server.model_copy(update={"token_s": 1e-300, "prompt_s": (0.0, 0.0, 0.0)})
        assert expected_requests(SMALL.model_copy(update={"server": quick}), Sources()) > 1e12

    def test_training_servers_have_an_estimate_of_zero(self) -> None:
        all_train = SMALL.model_copy(update={"training_share": 1.0, "budget_w": 1e6})
        assert expected_requests(all_train, Sources()) == 0.0
