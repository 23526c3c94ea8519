"""The time limit of a request limits the whole plan, and the plan names the phases that it cut.

A simulated clock advances only while the planner solves or replays, by an amount that the test sets.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolveStatus
from planner import Plan, PlanRequest
from planner.explain import what_if
from planner.problem import MixProblem
from planner.replay import ReplayResult, replay
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from planner.time_limit import Phase, TimeLimit
from planner.validation import scenarios
from tests.planner.requests import from_offers, given, solved

SLO = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}


@dataclass
class Machine:
    """Takes so long for each solve and each replay."""

    solve_s: float = 0.0
    replay_s: float = 0.0
    now_s: float = 0.0
    begun: list[tuple[str, float]] = field(default_factory=list)

    def solve(self, problem: MixProblem, *, solver: Solver, limits: Limits) -> MixSolution:
        self.begun.append(("solve", self.now_s))
        self.now_s += min(self.solve_s, limits.time_limit_s)
        found = solve_mix(problem, solver=solver, limits=Limits(time_limit_s=60, relative_gap=limits.relative_gap))
        is_cut = self.solve_s > limits.time_limit_s and found.status is SolveStatus.OPTIMAL
        return replace(found, status=SolveStatus.FEASIBLE) if is_cut else found

    def replay(self, *args: Any, **options: Any) -> ReplayResult:
        self.begun.append(("replay", self.now_s))
        self.now_s += self.replay_s
        return replay(*args, **options)

    def plan(self, request: dict[str, Any], **more: Any) -> Plan:
        return solved(request, clock_s=lambda: self.now_s, **more)

    def begun_at(self, kind: str) -> list[float]:
        return [at_s for each, at_s in self.begun if each == kind]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(what_if, "solve_mix", machine.solve)
    monkeypatch.setattr(scenarios, "replay", machine.replay)
    return machine


def replayed(workloads: int = 1, **policy: Any) -> dict[str, Any]:
    one = from_offers(rate_rps=20, slo=SLO)
    named = [one["workloads"][0] | {"name": f"chat {number}"} for number in range(workloads)]
    return {**one, "workloads": named, "replay": {"hours": 0.05}, "policy": policy}


def test_a_plan_in_time_is_not_cut(machine: Machine) -> None:
    plan = machine.plan(replayed(), time_limit_s=10.0)
    assert (plan.cut, plan.verified) == ((), True)


def test_no_replay_begins_after_its_part_of_the_time(machine: Machine) -> None:
    machine.replay_s = 3.0
    plan = machine.plan(replayed(), time_limit_s=20.0)
    assert max(machine.begun_at("replay")) < 20.0 * 0.8
    assert machine.now_s <= 20.0 + machine.replay_s
    assert Phase.REPLAY in plan.cut


def test_a_cut_search_keeps_the_cheapest_mix_whose_replay_holds(machine: Machine) -> None:
    whole = machine.plan(replayed(), time_limit_s=100.0)
    replays = len(machine.begun_at("replay"))
    machine.replay_s = 1.0
    costs = []
    for allowed in range(1, replays + 2):
        machine.now_s = 0.0
        plan = machine.plan(replayed(explain="none"), time_limit_s=float(allowed))
        if plan.verified:
            costs.append(plan.cost_usd_per_h)
        else:
            assert not costs, "more time never loses the proof"
    assert costs == sorted(costs, key=lambda cost: -(cost or 0.0))
    assert costs[-1] == whole.cost_usd_per_h


def test_without_time_for_every_workload_the_plan_is_not_verified(machine: Machine) -> None:
    machine.replay_s = 4.0
    plan = machine.plan(replayed(3) | {"replay": {"hours": 0.05, "size": False}}, time_limit_s=10.0)
    assert plan.status is SolveStatus.OPTIMAL
    assert 0 < len(plan.proofs) < 3
    assert plan.verified is not True
    assert Phase.REPLAY in plan.cut
    assert "chat 2: not replayed: the time limit expired" in plan.explanation


def test_a_schedule_and_an_explanation_have_what_is_left(machine: Machine) -> None:
    machine.solve_s = 100.0
    demand = {"step_s": 3600, "rates_rps": [1.0, 2.0, 3.0, 4.0]}
    plan = machine.plan(given(rate_rps=None, demand=demand), horizon={"periods": 4}, time_limit_s=10.0)
    assert machine.begun_at("solve")[0] == 0.0
    assert machine.begun_at("solve")[1] == pytest.approx(4.0), "half of what the explanation leaves is for the mix"
    assert machine.now_s <= 10.0
    assert plan.cut == (Phase.MIX, Phase.EXPLANATION)
    assert plan.timetable is not None
    assert plan.timetable.total_usd is not None


def test_an_explanation_that_ends_early_is_named(machine: Machine) -> None:
    machine.solve_s = 1.5
    plan = machine.plan(given(), time_limit_s=10.0)
    assert machine.now_s <= 10.0
    assert plan.cut == (Phase.EXPLANATION,)
    assert machine.plan(given(), time_limit_s=10.0, policy={"explain": "none"}).cut == ()


@drawn(
    limit_s=st.floats(0.01, 600),
    explain=st.sampled_from(("none", "short", "full")),
    given_s=st.none() | st.floats(0, 600),
    spent=st.lists(st.floats(0, 1.5), min_size=2, max_size=2),
)
def test_phases_that_keep_their_parts_leave_the_explanation_its_own(
    limit_s: float, explain: str, given_s: float | None, spent: list[float]
) -> None:
    now = [5.0]
    policy = {"explain": explain, "explain_time_limit_s": given_s}
    request = PlanRequest.model_validate(given() | {"time_limit_s": limit_s, "policy": policy, "replay": {}})
    limit = TimeLimit.of(request, clock_s=lambda: now[0])
    for share in spent:
        ends_s = limit.next_phase_ends_s()
        assert now[0] <= ends_s <= max(now[0], limit.ends_s - limit.reserved_s) + 1e-9
        now[0] += share * (ends_s - now[0])
    assert 0 <= limit.reserved_s <= limit_s / 2
    if max(spent) <= 1:
        assert limit.ends_s - now[0] >= limit.reserved_s - 1e-9
