"""The search for headroom: it finds the limit in few plans and returns only a replayed plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from planner.replay.headroom import GRID, Headroom, Utilisations, find_headroom

Plan = tuple[tuple[str, float], ...]


@dataclass
class Planner:
    """A plan costs 1 / utilisation; a workload meets its SLO up to its own limit."""

    edges: Mapping[str, float]
    least: float = 0.0  # no plan exists below this utilisation
    plans: list[Plan] = field(default_factory=list)

    def plan_at(self, utilisations: Utilisations) -> tuple[Plan, float] | None:
        plan = tuple(utilisations.items())
        self.plans.append(plan)
        if min(utilisations.values()) < self.least:
            return None
        return plan, sum(1 / utilisation for utilisation in utilisations.values())

    def verify(self, plan: Plan) -> dict[str, bool]:
        return {workload: utilisation <= self.edges[workload] for workload, utilisation in plan}

    def search(self, *, max_plans: int = 8) -> Headroom[Plan]:
        return find_headroom(list(self.edges), plan_at=self.plan_at, verify=self.verify, max_plans=max_plans)


EDGES = st.dictionaries(st.sampled_from("abcd"), st.floats(0.25, 1.0), min_size=1)


class TestSearch:
    @given(edges=EDGES)
    def test_each_workload_gets_the_smallest_sufficient_headroom(self, edges: dict[str, float]) -> None:
        planner = Planner(edges)
        found = planner.search()
        assert found.best is not None
        expected = {name: max(value for value in GRID if value <= edge) for name, edge in edges.items()}
        assert found.best.utilisations == expected

    @given(edges=EDGES)
    def test_the_number_of_plans_does_not_grow_with_the_workloads(self, edges: dict[str, float]) -> None:
        planner = Planner(edges)
        planner.search()
        assert len(planner.plans) <= 6
        assert len(set(planner.plans)) == len(planner.plans)

    def test_a_first_plan_that_meets_its_slos_is_returned(self) -> None:
        planner = Planner({"a": 1.0, "b": 1.0})
        found = planner.search()
        assert len(found.trials) == 1
        assert found.best is not None
        assert found.best.utilisations == {"a": 1.0, "b": 1.0}

    def test_the_utilisation_of_a_verified_workload_is_not_changed(self) -> None:
        planner = Planner({"fine": 1.0, "tight": 0.5})
        planner.search()
        assert all(dict(plan)["fine"] == 1.0 for plan in planner.plans)

    def test_a_search_without_a_verified_plan_reports_none(self) -> None:
        found = Planner({"a": 0.1}).search()
        assert found.best is None
        assert all(not trial.holds for trial in found.trials)

    def test_headroom_without_a_plan_is_not_tried_twice(self) -> None:
        planner = Planner({"a": 0.8}, least=0.7)
        found = planner.search()
        assert found.best is not None
        assert found.best.utilisations == {"a": 0.8}

    @given(edge=st.floats(0.5, 2.4), start=st.floats(0.4, 2.5))
    def test_the_search_finds_utilisations_above_1(self, edge: float, start: float) -> None:
        """On a grid beyond 1 the search finds the limit from any start."""
        grid = tuple(step / 10 for step in range(5, 25))
        planner = Planner({"a": edge})
        found = find_headroom(["a"], plan_at=planner.plan_at, verify=planner.verify, grid=grid, start=start)
        assert found.best is not None
        assert found.best.utilisations == {"a": max(value for value in grid if value <= edge)}
        assert planner.plans[0] == (("a", max([value for value in grid if value <= start], default=grid[0])),)

    def test_the_limit_on_plans_is_kept(self) -> None:
        planner = Planner({"a": 0.3})
        assert len(planner.search(max_plans=2).trials) == 2

    @given(
        edges=EDGES,
        flips=st.lists(st.booleans(), min_size=20, max_size=20),
    )
    def test_the_returned_plan_is_always_verified(self, edges: dict[str, float], flips: list[bool]) -> None:
        """The search ends with a verified plan even where more headroom makes results worse."""
        planner = Planner(edges)
        flip = iter(flips)

        def verify(plan: Plan) -> dict[str, bool]:
            return {workload: holds ^ next(flip, False) for workload, holds in planner.verify(plan).items()}

        found = find_headroom(list(edges), plan_at=planner.plan_at, verify=verify)
        assert found.best is None or all(found.best.verified.values())
        holding = [trial.cost_usd_per_h for trial in found.trials if trial.holds]
        assert (found.best is None) == (not holding)
        if found.best is not None:
            assert found.best.cost_usd_per_h == min(holding)

    @pytest.mark.parametrize("grid", [(), (0.5, 0.5), (1.0, 0.5), (0.0, 1.0), (0.5, float("inf"))])
    def test_a_grid_outside_its_range_is_refused(self, grid: tuple[float, ...]) -> None:
        with pytest.raises(RuleError, match="grid"):
            find_headroom(["a"], plan_at=lambda _: None, verify=lambda _: {}, grid=grid)
