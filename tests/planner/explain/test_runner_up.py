"""Runners-up, and the break-even prices of unused types."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings

from fleet.solvers import SolveStatus
from planner import PlanRequest
from planner.explain import what_if as what_if_module
from planner.explain.alternatives import as_text as alternatives_text
from planner.explain.alternatives import improved, single_gpu_plans
from planner.explain.break_even import BreakEven, break_evens
from planner.explain.break_even import as_text as price_in_words
from planner.explain.runner_up import RunnerUp, as_text, runners_up, type_names
from planner.explain.what_if import avoiding
from planner.problem import Change, Load, MixProblem, Supply
from planner.solve.fixed_counts import at_counts
from planner.solve.solution import MixSolution
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.requests import given as given_request
from tests.planner.small_problems import budget, cost, limited_problems, solved, three_types, what_if


def others(problem: MixProblem, *, count: int = 3) -> tuple[RunnerUp, ...]:
    return runners_up(what_if(problem), solved(problem), count=count)


def types_of(problem: MixProblem, names: set[str]) -> frozenset[str]:
    by_name = dict(zip((option.name for option in problem.options), type_names(problem), strict=True))
    return frozenset(by_name[name] for name in names)


class TestRunnersUp:
    @given(limited_problems())
    def test_runners_up_are_sorted_and_each_lacks_a_type_of_every_earlier_mix(self, problem: MixProblem) -> None:
        plan, found = solved(problem), others(problem)
        if not plan.status.has_mix:
            assert found == ()
            return
        used = {o.name for o, n in zip(problem.options, plan.replicas, strict=True) if n}
        supports = [types_of(problem, used)]
        costs = [plan.cost_usd_per_h or 0.0]
        for mix in found:
            assert mix.proven
            assert mix.cost_usd_per_h >= costs[-1] - 1e-6
            assert mix.worse_by == pytest.approx(mix.cost_usd_per_h - costs[0], abs=1e-6)
            support = types_of(problem, set(mix.replicas))
            assert not any(earlier <= support for earlier in supports)
            supports.append(support)
            costs.append(mix.cost_usd_per_h)

    @settings(max_examples=15)
    @given(limited_problems())
    def test_the_first_runner_up_is_the_cheapest_over_all_type_sets(self, problem: MixProblem) -> None:
        """The first runner-up is the cheapest over all sets of types that leave out one of the plan's."""
        plan = solved(problem)
        if not plan.status.has_mix:
            return
        types = type_names(problem)
        used = {name for name, n in zip(types, plan.replicas, strict=True) if n}
        every = sorted(set(types))
        sets = [set(names) for size in range(1, len(every) + 1) for names in combinations(every, size)]
        costs = [
            cost(avoiding(problem, [o for o, name in enumerate(types) if name in banned]))
            for banned in sets
            if banned & used
        ]
        possible = [value for value in costs if value is not None]
        found = others(problem, count=1)
        assert [mix.cost_usd_per_h for mix in found] == [pytest.approx(min(possible))] if possible else found == ()

    def test_the_text_states_the_cost_and_the_difference(self) -> None:
        problem = three_types()
        first = others(problem)[0]
        extra = first.cost_usd_per_h - 12.12
        assert as_text(first, problem).endswith(
            f"{first.cost_usd_per_h:.2f} $/h, {extra:.2f} $/h ({extra / 12.12:.1%}) more"
        )

    def test_options_of_one_gpu_type_are_distinguished_by_name(self) -> None:
        supplies = (Supply("a", 1.0), Supply("b", 1.1))
        ways = (RoutedOption("tp1", "H100", 0, 0, (1.0,)), RoutedOption("tp2", "H100", 0, 1, (1.0,)))
        (found,) = others(mix_of((Load("w", (1.0,)),), supplies, ways))
        assert (found.without, dict(found.replicas)) == (("tp1",), {"tp2": 1})
        assert found.worse_by == pytest.approx(0.1)

    def test_replicas_that_must_not_be_stopped_stay_in_every_runner_up(self) -> None:
        problem = three_types(stock=(None, None, None), change=Change(max_stopped=0))
        running = tuple(replace(option, held=held) for option, held in zip(problem.options, (1, 0, 0), strict=True))
        assert all("L4" in mix.replicas for mix in others(replace(problem, options=running)))

    def test_an_expired_deadline_gives_no_runners_up(self) -> None:
        problem = three_types()
        assert runners_up(what_if(problem, deadline_s=0.0), solved(problem)) == ()


class TestCutOff:
    """Mixes that the time limit cut off early."""

    def wasteful(self, problem: MixProblem, **_: object) -> MixSolution:
        """The best mix with every count five times as high, as a solver may leave it."""
        best = solved(problem)
        cut_off = replace(best, status=SolveStatus.FEASIBLE, bound=0.0)
        return at_counts(problem, cut_off, tuple(5 * n for n in best.replicas)) or cut_off

    def nothing(self, problem: MixProblem, **_: object) -> MixSolution:
        return MixSolution.without_mix(problem, status=SolveStatus.TIME_LIMIT, bound=0.0)

    @pytest.mark.parametrize("solver", ["wasteful", "nothing"])
    def test_no_single_type_plan_costs_more_than_a_known_mix_without_the_same_types(
        self, solver: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem = three_types(stock=(None, None, None))
        plan = solved(problem)
        what_if_solver = what_if(problem)
        what_if_solver.known.append((frozenset(), plan))
        monkeypatch.setattr(what_if_module, "solve_mix", getattr(self, solver))
        request = PlanRequest.model_validate(given_request())
        found = single_gpu_plans(what_if_solver, request, plan)
        mixes = runners_up(what_if_solver, plan)
        assert mixes
        for mix in mixes:
            assert not mix.proven
            assert "not proven" in as_text(mix, problem)
            for entry in found:
                if entry.cost_usd_per_h is not None and entry.gpu not in mix.without:
                    assert mix.cost_usd_per_h <= entry.cost_usd_per_h + 1e-9
        before = {entry.gpu: entry.cost_usd_per_h for entry in found}
        for entry in improved(what_if_solver, found, plan):
            known = [mix.cost_usd_per_h for mix in mixes if set(mix.replicas) == {entry.gpu}]
            assert all((entry.cost_usd_per_h or 0.0) <= dearest for dearest in [*known, before[entry.gpu]] if dearest)
        assert all("not proven" in line for line in alternatives_text(found) if "cannot" not in line)

    def test_unused_replicas_are_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = three_types(stock=(None, None, None))
        monkeypatch.setattr(what_if_module, "solve_mix", self.wasteful)
        without_h100 = what_if(problem).without_options([2])
        assert without_h100 is not None
        assert without_h100.cost_usd_per_h == pytest.approx(cost(avoiding(problem, [2])), rel=0.2)
        fewer = (tuple(n - (o == option) for o, n in enumerate(without_h100.replicas)) for option in (0, 1))
        assert all(min(counts) < 0 or at_counts(problem, without_h100, counts) is None for counts in fewer)


class TestBreakEven:
    def unused(self, problem: MixProblem) -> dict[str, BreakEven]:
        return {entry.gpu: entry for entry in break_evens(what_if(problem), solved(problem))}

    def at(self, problem: MixProblem, entry: BreakEven, factor: float) -> MixProblem:
        supplies = tuple(
            replace(s, price_usd_per_h=s.price_usd_per_h * factor) if s.name == entry.supply else s
            for s in problem.supplies
        )
        return replace(problem, supplies=supplies)

    @pytest.mark.parametrize("price_usd_per_h", [6.0, 9.0, 20.0])
    def test_the_plan_gets_cheaper_only_below_the_break_even_price(self, price_usd_per_h: float) -> None:
        base = three_types(stock=(None, None, None), rate_rps=90.0)
        supplies = (*base.supplies[:2], replace(base.supplies[2], price_usd_per_h=price_usd_per_h))
        problem = replace(base, supplies=supplies)
        before = cost(problem) or 0.0
        for entry in self.unused(problem).values():
            assert entry.proven
            assert 0 < entry.factor < 1
            assert (cost(self.at(problem, entry, entry.factor - 1e-3)) or 0.0) < before - 1e-9
            assert cost(self.at(problem, entry, entry.factor + 1e-3)) == pytest.approx(before)

    def test_the_text_names_the_price_below_which_the_type_pays(self) -> None:
        base = three_types(stock=(None, None, None), rate_rps=90.0)
        problem = replace(base, supplies=(*base.supplies[:2], replace(base.supplies[2], price_usd_per_h=20.0)))
        entry = self.unused(problem)["H100"]
        price = f"{entry.factor * 20:.2f} $/h instead of 20.00 (H100)"
        assert price_in_words(entry) == f"H100 is not used; it would pay below {price}"

    def test_a_type_that_serves_nothing_breaks_even_at_no_price(self) -> None:
        problem = three_types(stock=(None, None, None))
        routes = (replace(problem.routes[0], legs=(replace(problem.routes[0].legs[0], max_rps=(0.0,) * 4),)),)
        entry = self.unused(replace(problem, routes=(*routes, *problem.routes[1:])))["L4"]
        assert (entry.factor, entry.proven) == (0.0, True)
        assert price_in_words(entry) == "L4 is not used and would not be for nothing either"

    def test_the_budget_applies_to_the_lower_price(self) -> None:
        base = three_types(stock=(None, None, None), rate_rps=90.0)
        problem = replace(base, supplies=(*base.supplies[:2], replace(base.supplies[2], price_usd_per_h=20.0)))
        spent = cost(problem) or 0.0
        limit = replace(budget(spent), units={f: s.price_usd_per_h for f, s in enumerate(problem.supplies)})
        free, tight = self.unused(problem)["H100"], self.unused(replace(problem, limits=(limit,)))["H100"]
        assert tight.factor == pytest.approx(free.factor)
