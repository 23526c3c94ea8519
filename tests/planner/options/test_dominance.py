"""Removing dominated options keeps the optimum: each problem is solved with and without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fleet.offers import Offer
from fleet.solvers import Limits, Solver
from planner.objectives import COST, ENERGY, Objective
from planner.options.dominance import CostFactors, dominates, undominated, undominated_offers
from planner.problem import Change, Leg, Limit, LimitKind, Load, Loss, MixProblem, ReplicaOption, Route, Supply
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import OVERLOAD_TOLERANCE
from tests.planner.requests import OFFERS, from_offers, offer, solved

LIMITS = Limits(time_limit_s=20.0, relative_gap=0.0)
UNIT_GPUS = 4


@dataclass(frozen=True, slots=True)
class Plain:
    """A variant as plain numbers."""

    gpus: int
    rates_rps: tuple[float, ...]
    worst_rps: tuple[float, ...]
    idle_w: float = 0.0
    busy_w: float = 0.0
    limit_w: float = 0.0
    held: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """Variants on one supply, one more option that no variant dominates, and a demand."""

    variants: tuple[Plain, ...]
    demand_rps: tuple[float, ...]
    goal: Objective
    more: dict[str, Any]

    @property
    def cost_factors(self) -> CostFactors:
        change: Change = self.more.get("change", Change())
        return CostFactors(
            power=self.goal.counts_power or "limits" in self.more,
            moves=self.goal.counts_switching or change.max_started is not None,
            nodes="losses" in self.more,
        )

    def problem(self, variants: Sequence[Plain]) -> MixProblem:
        supplies = (Supply("unit", 4.0, slots=UNIT_GPUS), Supply("other", 1.7, slots=1, available=2))
        options = [
            ReplicaOption(f"o{o}", "H100-SXM", 0, v.gpus, idle_w=v.idle_w, busy_w=v.busy_w, held=v.held)
            for o, v in enumerate(variants)
        ]
        other = len(options)
        options.append(ReplicaOption("other", "L4", 1, idle_w=10, busy_w=60))
        routes = [Route(f"o{o}", 0, (Leg(o, v.rates_rps, v.worst_rps),)) for o, v in enumerate(variants)]
        routes.append(Route("other", 0, (Leg(other, (1.0,) * len(self.demand_rps)),)))
        more = dict(self.more)
        if "limits" in more:
            watts = {o: v.limit_w for o, v in enumerate(variants)} | {other: 60.0}
            more["limits"] = (Limit("feed", LimitKind.POWER, more["limits"], replicas=watts),)
        if "losses" in more:
            lost = {o: UNIT_GPUS // v.gpus for o, v in enumerate(variants)} | {other: 1}
            more["losses"] = tuple(Loss(f"node of {o}", {o: count}) for o, count in lost.items())
        loads = (Load("w", self.demand_rps, min_replicas=1),)
        return MixProblem(loads, supplies, tuple(options), tuple(routes), objective=self.goal, **more)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rates from a coarse grid, and variants derived from others, so that many are equal or nearly equal."""
    buckets = draw(st.integers(1, 2))
    grid = st.sampled_from((0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0))
    watts = st.sampled_from((100.0, 200.0, 400.0))

    def variant() -> Plain:
        rates = tuple(draw(st.lists(grid, min_size=buckets, max_size=buckets)))
        worst = tuple(rate * draw(st.sampled_from((1.0, 0.5))) for rate in rates)
        idle = draw(watts)
        held = draw(st.sampled_from((0, 0, 0, 1)))
        return Plain(draw(st.sampled_from((1, 2, 4))), rates, worst, idle, idle + draw(watts), idle + draw(watts), held)

    def like(other: Plain) -> Plain:
        times = draw(st.sampled_from((1, 2)))
        nearly = st.sampled_from((1.0, 1.0, 0.9, 1.1))
        rates = tuple(times * draw(nearly) * rate for rate in other.rates_rps)
        worst = tuple(min(rate, times * draw(nearly) * low) for rate, low in zip(rates, other.worst_rps, strict=True))
        idle_w, busy_w, limit_w = (times * draw(nearly) * w for w in (other.idle_w, other.busy_w, other.limit_w))
        return Plain(min(UNIT_GPUS, times * other.gpus), rates, worst, idle_w, max(idle_w, busy_w), limit_w)

    made = [variant()]
    for _ in range(draw(st.integers(1, 3))):
        made.append(like(draw(st.sampled_from(made))) if draw(st.booleans()) else variant())
    variants = tuple(draw(st.permutations(made)))
    demand = tuple(draw(st.lists(st.sampled_from((0.0, 0.5, 1.5, 5.0)), min_size=buckets, max_size=buckets)))
    more: dict[str, Any] = {"erring_buckets": draw(st.integers(0, 1))}
    kind = draw(st.sampled_from(("plain", "feed", "node", "moves")))
    if kind == "feed":
        more["limits"] = draw(st.sampled_from((300.0, 900.0, 2500.0)))
    if kind == "node":
        more |= {"losses": (), "own_nodes": True, "erring_buckets": 0}
    if kind == "moves":
        more["change"] = Change(max_started=draw(st.integers(0, 3)))
    goals = (COST,) if kind == "node" else (COST, ENERGY)
    return Case(variants, demand, draw(st.sampled_from(goals)), more)


@given(cases())
def test_the_optimum_is_the_same_without_dominated_variants(case: Case) -> None:
    kept = undominated(case.variants, cost_factors=case.cost_factors, pinned=lambda variant: variant.held > 0)
    assume(len(kept) < len(case.variants))
    whole, thinned = (
        solve_mix(case.problem(variants), solver=Solver.HIGHS, limits=LIMITS) for variants in (case.variants, kept)
    )
    assert thinned.status is whole.status
    assert thinned.bound == pytest.approx(whole.bound, rel=1e-6, abs=1e-6)
    # A plan with fewer GPUs may cost up to the overload tolerance above the optimum, in either of the two.
    given_away = 2 * OVERLOAD_TOLERANCE
    assert (thinned.objective_value or 0.0) == pytest.approx(
        whole.objective_value or 0.0, rel=given_away, abs=given_away
    )


def plain(gpus: int, *rates_rps: float, **more: Any) -> Plain:
    return Plain(gpus, rates_rps, more.pop("worst_rps", rates_rps), **more)


class TestDominates:
    def test_two_narrow_replicas_dominate_an_equal_wide_one(self) -> None:
        narrow, wide = plain(1, 2, 1), plain(2, 4, 1.5)
        assert dominates(narrow, wide, cost_factors=CostFactors())
        assert not dominates(wide, narrow, cost_factors=CostFactors())

    def test_a_bucket_that_only_the_wide_option_serves_prevents_dominance(self) -> None:
        assert not dominates(plain(1, 2, 0), plain(2, 3, 0.1), cost_factors=CostFactors())

    def test_a_lower_worst_rate_prevents_dominance(self) -> None:
        assert not dominates(plain(1, 2, worst_rps=(1,)), plain(1, 2, worst_rps=(1.5,)), cost_factors=CostFactors())

    def test_a_lower_expected_rate_prevents_dominance(self) -> None:
        assert not dominates(plain(1, 2, worst_rps=(1,)), plain(1, 3, worst_rps=(1,)), cost_factors=CostFactors())

    @pytest.mark.parametrize("better", [{"idle_w": 99.0, "busy_w": 199.0}, {"busy_w": 199.0}, {"limit_w": 249.0}])
    def test_lower_power_of_any_kind_prevents_dominance_where_power_counts(self, better: dict[str, float]) -> None:
        watts = {"idle_w": 100.0, "busy_w": 200.0, "limit_w": 250.0}
        one, other = plain(1, 2, **watts), plain(1, 2, **(watts | better))
        assert not dominates(one, other, cost_factors=CostFactors(power=True))
        assert dominates(one, other, cost_factors=CostFactors())

    def test_power_is_compared_only_where_power_counts(self) -> None:
        hot, cool = plain(1, 2, idle_w=10, busy_w=300, limit_w=300), plain(1, 2, idle_w=10, busy_w=200, limit_w=200)
        assert dominates(hot, cool, cost_factors=CostFactors())
        assert not dominates(hot, cool, cost_factors=CostFactors(power=True))
        assert dominates(cool, hot, cost_factors=CostFactors(power=True))

    def test_more_replicas_prevent_dominance_where_starts_count(self) -> None:
        assert not dominates(plain(1, 2), plain(2, 4), cost_factors=CostFactors(moves=True))


class TestUndominated:
    def test_the_first_of_equal_variants_is_kept(self) -> None:
        equals = [plain(1, 2, idle_w=1), plain(1, 2, idle_w=2)]
        assert undominated(equals, cost_factors=CostFactors(), pinned=lambda _: False) == equals[:1]

    def test_a_pinned_variant_is_kept(self) -> None:
        equals = [plain(1, 2), plain(1, 2, held=1)]
        assert undominated(equals, cost_factors=CostFactors(), pinned=lambda variant: variant.held > 0) == equals

    def test_no_variant_is_dropped_where_nodes_and_power_both_count(self) -> None:
        equals = [plain(1, 2), plain(1, 2)]
        assert undominated(equals, cost_factors=CostFactors(power=True, nodes=True), pinned=lambda _: False) == equals


def offers_of(*written: dict[str, Any]) -> list[Offer]:
    return [Offer.model_validate(each) for each in written]


class TestOffers:
    def test_the_more_expensive_equal_offer_is_dropped_and_a_cheaper_limited_one_kept(self) -> None:
        offers = offers_of(
            offer("a", "L4", 3), offer("b", "L4", 2), offer("c", "L4", 1, available=4), offer("d", "L4", 2.5, quota=1)
        )
        kept = undominated_offers(offers, cost_factors=CostFactors(), traits=lambda _: None, pinned=lambda _: False)
        assert [each.id for each in kept] == ["b", "c"]

    def test_offers_with_other_gpus_sizes_or_traits_are_never_equal(self) -> None:
        offers = offers_of(
            offer("a", "L4", 1), offer("b", "A10G", 2), offer("c", "L4", 9, gpus_per_instance=4), offer("d", "L4", 3)
        )
        kept = undominated_offers(
            offers, cost_factors=CostFactors(), traits=lambda each: each.id == "d", pinned=lambda _: False
        )
        assert kept == offers

    @settings(max_examples=15)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(("L4", "H100-SXM")),
                st.sampled_from((1.0, 2.0, 4.0)),
                st.none() | st.integers(0, 3),
                st.sampled_from(("one", "two")),
            ),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from(({}, {"quotas": [{"name": "q", "gpus": 3, "region": "one"}]})),
    )
    @example(
        [("L4", 1.0, None, "one"), ("L4", 2.0, None, "two")], {"quotas": [{"name": "q", "gpus": 1, "region": "one"}]}
    )
    def test_dropping_dominated_offers_does_not_change_the_cost(
        self, drawn: list[tuple[str, float, int | None, str]], policy: dict[str, Any]
    ) -> None:
        assume(not policy or any(region == "one" for *_, region in drawn))  # a region without offers is refused
        offers = [
            offer(f"o{number}", gpu, price) | {"available": stock, "region": region}
            for number, (gpu, price, stock, region) in enumerate(drawn)
        ]
        apart = [each | {"commitment_h": number + 1, "market": "reserved"} for number, each in enumerate(offers)]
        thinned, whole = (solved(from_offers(rate_rps=60) | {"offers": each}, **policy) for each in (offers, apart))
        assert (thinned.status, thinned.cost_usd_per_h) == (whole.status, whole.cost_usd_per_h)

    def test_a_running_offer_is_kept(self) -> None:
        offers = [offer("here/dear", "H100-SXM", 9), offer("here/fair", "H100-SXM", 3)]
        running = [{"workload": "chat", "option": "here/dear/tp1", "replicas": 2}]
        plan = solved(
            from_offers() | {"offers": offers}, current=running, policy={"change": {"max_stopped": 0, "max_started": 9}}
        )
        assert {"here/dear/tp1": 2}.items() <= {entry.option: entry.count for entry in plan.allocation}.items()


def test_no_offer_of_the_test_fixture_is_dominated() -> None:
    kept = undominated_offers(
        offers_of(*OFFERS), cost_factors=CostFactors(), traits=lambda _: None, pinned=lambda _: False
    )
    assert len(kept) == len(OFFERS)
