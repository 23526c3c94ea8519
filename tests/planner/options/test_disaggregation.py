"""Separate prefill and decode: the SLO of each side, the pairs considered, and the plans with them."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Slo
from fleet.solvers import Limits, Solver, SolveStatus
from planner.options import disaggregation
from planner.options.builder import candidates
from planner.options.enumeration import Shape
from planner.options.search import Candidate
from planner.options.variants import VariantTable
from planner.performance.config import ReplicaConfig
from planner.performance.open_loop import LINK_REACHED
from planner.performance.rates import Estimate
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from planner.problem_builder import build_problem
from planner.request import PlanRequest
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from tests.planner.estimators import simple
from tests.planner.requests import from_offers, offer

GPUS, MODELS = builtin_gpus(), builtin_models()
MODEL = MODELS.get("Llama-3.1-8B")
COMPUTE, BANDWIDTH = offer("here/compute", "L40S", 1.0), offer("here/bandwidth", "A100-80GB-SXM", 1.4)
LIMITS = Limits(time_limit_s=20.0, relative_gap=0.0)


def request_of(*offers: dict[str, object], split_too: bool = True, **changes: object) -> PlanRequest:
    return PlanRequest.model_validate(from_offers(split=split_too, **changes) | {"offers": list(offers)})


def found(request: PlanRequest) -> tuple[Candidate, ...]:
    return candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or (), estimator=simple)


def solution_of(request: PlanRequest) -> tuple[MixProblem, MixSolution]:
    problem = build_problem(request, found(request))
    return problem, solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)


class TestSlo:
    def test_each_side_has_its_own_limit(self) -> None:
        slo = Slo.model_validate({"ttft_ms": {"p90": 500}, "tpot_ms": {"mean": 40}})
        assert disaggregation.prefill_slo(slo) == Slo.model_validate({"ttft_ms": {"p90": 500}})
        assert disaggregation.decode_slo(slo, output_tokens=100) == Slo.model_validate({"tpot_ms": {"mean": 40}})

    def test_time_allowed_for_the_first_token_is_subtracted_from_the_decode_limit(self) -> None:
        slo = Slo.model_validate({"ttft_ms": {"mean": 1000}, "e2e_ms": {"mean": 11_000}})
        assert disaggregation.decode_slo(slo, output_tokens=101) == Slo.model_validate({"tpot_ms": {"mean": 100}})
        assert (
            disaggregation.decode_slo(
                Slo.model_validate({"ttft_ms": {"mean": 9}, "e2e_ms": {"mean": 9}}), output_tokens=5
            )
            is None
        )

    def test_without_a_ttft_limit_the_first_token_may_take_a_quarter(self) -> None:
        slo = Slo.model_validate({"e2e_ms": {"p99": 8000}, "tpot_ms": {"p99": 50}})
        assert disaggregation.prefill_slo(slo) == Slo.model_validate({"ttft_ms": {"p99": 2000}})
        assert disaggregation.decode_slo(slo, output_tokens=61) == Slo.model_validate({"tpot_ms": {"p99": 50}})

    @given(
        st.dictionaries(
            st.sampled_from(("ttft_ms", "tpot_ms", "e2e_ms")),
            st.dictionaries(st.sampled_from(("mean", "p50", "p90", "p99")), st.floats(1, 1e5), min_size=1),
            min_size=1,
        ),
        st.integers(1, 2000),
    )
    def test_prefill_and_decode_slos_together_imply_the_whole_slo(
        self, written: dict[str, dict[str, float]], output_tokens: int
    ) -> None:
        slo = Slo.model_validate({metric: _rising(limits) for metric, limits in written.items()})
        decode = disaggregation.decode_slo(slo, output_tokens=output_tokens)
        if decode is None:
            return
        first, then = dict(disaggregation.prefill_slo(slo).ttft_ms.items()), dict(decode.tpot_ms.items())
        for statistic, limit_ms in slo.e2e_ms.items():
            assert first[statistic] + (output_tokens - 1) * then[statistic] <= limit_ms * (1 + 1e-9)
        assert all(first[statistic] <= limit_ms for statistic, limit_ms in slo.ttft_ms.items())
        assert all(then[statistic] <= limit_ms for statistic, limit_ms in slo.tpot_ms.items())


class TestLink:
    def test_the_rate_is_limited_by_the_link(self) -> None:
        config = ReplicaConfig(MODEL, GPUS.get("L4"), role="prefill")
        gb = 2 * MODEL.layers * MODEL.kv_heads * MODEL.head_dim * 2 * 1000 / 1e9
        capped = disaggregation.within_link(Estimate(1e6), config, input_tokens=1000)
        assert capped.max_rps == pytest.approx(LINK_REACHED * 32 / gb)
        assert disaggregation.within_link(Estimate(0.5), config, input_tokens=1000) == Estimate(0.5)

    def test_the_slower_side_limits_the_link(self) -> None:
        l4, h100 = GPUS.get("L4"), GPUS.get("H100-SXM")
        assert l4.pcie_gb_per_s is not None
        assert disaggregation.slower_link_gb_per_s((l4, 1), (h100, 1)) is None
        assert disaggregation.slower_link_gb_per_s((h100, 1), (l4, 1)) == l4.pcie_gb_per_s
        assert disaggregation.slower_link_gb_per_s((h100, 2), (l4, 1)) == l4.pcie_gb_per_s / 2

    def test_a_slow_receiver_lowers_the_rate_of_the_prefill_side(self) -> None:
        sizes = {"input_tokens": [4000], "output_tokens": [10], "share": [[1.0]]}
        workload = request_of(COMPUTE, buckets=sizes).workloads[0]
        assert workload.slo is not None
        table, shape, gpu = VariantTable(workload, MODEL, workload.slo, simple), Shape(role="prefill"), GPUS.get("L40S")
        own, slower = table.variant(gpu, shape), table.variant(gpu, shape, kv_link_gb_per_s=0.25)
        assert slower.rates_rps[0] < own.rates_rps[0]
        sent_gb = disaggregation.kv_bytes(shape.config(MODEL, gpu, expert_imbalance=1), 4000) / 1e9
        assert slower.rates_rps[0] == pytest.approx(LINK_REACHED * 0.25 / sent_gb)


class TestPairSelection:
    @staticmethod
    def leg(usd_per_h: float, *rates_rps: float, limited: bool = False) -> disaggregation.Leg:
        return disaggregation.Leg(usd_per_h, rates_rps, limited)

    def kept(
        self, prefills: list[disaggregation.Leg], decodes: list[disaggregation.Leg], others: list[disaggregation.Leg]
    ) -> set[tuple[int, int]]:
        pairs = [
            disaggregation.Pair(p, d, prefill.rates_rps)
            for p, prefill in enumerate(prefills)
            for d in range(len(decodes))
        ]
        buckets = range(len(prefills[0].rates_rps))
        chosen = disaggregation.cheap_pairs(pairs, prefills=prefills, decodes=decodes, others=others, buckets=buckets)
        return {(pair.prefill, pair.decode) for pair in chosen}

    def test_only_the_cheapest_of_100_pairs_is_kept(self) -> None:
        sides = [self.leg(1.0 + number, 10.0) for number in range(10)]
        assert self.kept(sides, sides, []) == {(0, 0)}

    def test_a_pair_more_expensive_than_combined_replicas_is_dropped(self) -> None:
        sides = [self.leg(1.0, 10.0)]
        assert self.kept(sides, sides, [self.leg(1.0, 10.0)]) == set()
        assert self.kept(sides, sides, [self.leg(1.0, 10.0, limited=True)]) == {(0, 0)}

    def test_a_pair_that_is_cheapest_for_one_bucket_is_kept(self) -> None:
        sides = [self.leg(1.0, 10.0, 1.0), self.leg(1.0, 1.0, 10.0)]
        assert {(0, 0), (1, 1)} <= self.kept(sides, sides, [])

    def test_a_cheaper_pair_with_limited_stock_is_kept_beside_the_unlimited_pair(self) -> None:
        prefills = [self.leg(1.0, 10.0), self.leg(0.5, 10.0, limited=True)]
        assert self.kept(prefills, [self.leg(1.0, 10.0)], []) == {(0, 0), (1, 0)}

    def test_at_most_max_pairs_are_kept(self) -> None:
        sides = [self.leg(1.0 + number / 1e4, 10.0) for number in range(10)]
        assert len(self.kept(sides, sides, [])) == disaggregation.MAX_PAIRS


class TestPlans:
    def test_disaggregation_is_off_by_default(self) -> None:
        assert {each.role for each in found(request_of(COMPUTE, BANDWIDTH, split_too=False))} == {"both"}

    def test_disaggregation_over_two_gpu_types_lowers_the_cost(self) -> None:
        sizes = {"input_tokens": [1000], "output_tokens": [1000], "share": [[1.0]]}
        _, solution = solution_of(request_of(COMPUTE, BANDWIDTH, buckets=sizes, rate_rps=40))
        problem, alone = solution_of(request_of(COMPUTE, BANDWIDTH, buckets=sizes, rate_rps=40, split_too=False))
        assert (solution.cost_usd_per_h or 0) < (alone.cost_usd_per_h or 0)
        assert len(problem.routes) == len(problem.options)

    @settings(max_examples=15)
    @given(st.floats(0.5, 80), st.lists(st.integers(0, 5), min_size=2, max_size=2).filter(any))
    def test_every_request_passes_both_sides_without_overload(self, rate_rps: float, weights: list[int]) -> None:
        shares = [[weight / sum(weights)] for weight in weights]
        sizes = {"input_tokens": [200, 4000], "output_tokens": [500], "share": shares}
        problem, solution = solution_of(request_of(COMPUTE, BANDWIDTH, buckets=sizes, rate_rps=rate_rps))
        assert solution.status is SolveStatus.OPTIMAL
        load = [0.0] * len(problem.options)
        served = dict.fromkeys(problem.buckets(), 0.0)
        for (r, b), share in solution.shares.items():
            way = problem.routes[r]
            assert all(solution.replicas[leg.option] > 0 for leg in way.legs)
            assert [problem.options[leg.option].name.rsplit("-", 1)[-1] for leg in way.legs] in (
                [problem.options[way.legs[0].option].name.rsplit("-", 1)[-1]],
                ["prefill", "decode"],
            )
            served[way.load, b] += share
            for leg in way.legs:
                load[leg.option] += share * problem.loads[0].rate_rps[b] / leg.max_rps[b]
        assert list(served.values()) == pytest.approx([1.0] * len(served))
        assert all(used <= count * (1 + 1e-6) + 1e-9 for used, count in zip(load, solution.replicas, strict=True))

    @given(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=3),
        st.integers(1, 20),
    )
    def test_the_prefill_decode_ratio_matches_exhaustive_search(
        self, ways: list[tuple[int, int]], demand_rps: int
    ) -> None:
        prices, rates = zip(*ways, strict=True)
        supplies = tuple(Supply(f"f{f}", float(price)) for f, price in enumerate(prices))
        options = tuple(ReplicaOption(f"o{o}", "L4", o) for o in range(3))
        legs = [Leg(o, (float(rate),)) for o, rate in enumerate(rates)]
        routes = (Route("both", 0, (legs[0],)), Route("pair", 0, (legs[1], legs[2])))
        problem = MixProblem((Load("w", (float(demand_rps),)),), supplies, options, routes)
        counts = product(*(range(demand_rps // rate + 2) for rate in rates))
        best = min(
            sum(price * count for price, count in zip(prices, each, strict=True))
            for each in counts
            if each[0] * rates[0] + min(each[1] * rates[1], each[2] * rates[2]) >= demand_rps
        )
        assert solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS).cost_usd_per_h == best

    def test_disaggregation_never_raises_the_cost(self) -> None:
        for rate_rps in (1, 7, 30):
            costs = [
                solution_of(request_of(COMPUTE, BANDWIDTH, rate_rps=rate_rps, split_too=split_too))[1].cost_usd_per_h
                for split_too in (True, False)
            ]
            assert (costs[0] or 0) <= (costs[1] or 0) + 1e-9

    def test_ten_types_give_far_fewer_than_a_hundred_routes(self) -> None:
        types = (
            "L4",
            "A10G",
            "L40S",
            "A100-40GB-SXM",
            "A100-80GB-SXM",
            "H100-SXM",
            "H200-SXM",
            "B200",
            "RTX-4090",
            "H20",
        )
        offers = [offer(f"here/{gpu.lower()}", gpu, 1.0 + number) for number, gpu in enumerate(types)]
        problem = build_problem(request_of(*offers), found(request_of(*offers)))
        pairs = [route for route in problem.routes if len(route.legs) == 2]
        assert 1 <= len(pairs) <= 10
        used = {leg.option for route in problem.routes for leg in route.legs}
        assert used == set(range(len(problem.options)))

    def test_prefill_and_decode_are_in_the_same_region_and_zone(self) -> None:
        near, far = BANDWIDTH | {"id": "near/one"}, BANDWIDTH | {"id": "far/one", "region": "two"}
        zoned = [COMPUTE | {"id": "a/one", "zone": "a"}, BANDWIDTH | {"id": "b/one", "zone": "b"}]
        for each in found(request_of(COMPUTE, near, far, *zoned)):
            assert each.offer is not None
            for feed in each.decode_targets:
                sides = {each.name.split("/")[0], feed.decode.split("/")[0]}
                assert sides not in ({"here", "far"}, {"near", "far"}, {"a", "b"})
                assert "far" not in sides or sides == {"far"}

    def test_both_sides_use_the_same_cache_precision(self) -> None:
        for each in found(request_of(COMPUTE, BANDWIDTH, kv_precisions=["bf16", "fp8"])):
            for feed in each.decode_targets:
                assert ("kv8" in each.name) == ("kv8" in feed.decode)


def _rising(limits: dict[str, float]) -> dict[str, float]:
    percentiles = [name for name in ("p50", "p90", "p99") if name in limits]
    values = sorted(limits[name] for name in percentiles)
    return {**limits, **dict(zip(percentiles, values, strict=True))}
