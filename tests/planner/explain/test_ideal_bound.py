"""The minimum work of a request by its size, and the bounds that follow."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.roofline import Replica, steady_state
from fleet.gpus import builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from planner import PlanRequest
from planner.explain.ideal_bound import (
    Hardware,
    IdealBound,
    Work,
    as_text,
    find_ideal_bound,
    mean_work,
    request_work,
    work,
)
from planner.objectives import SERVED
from planner.options.builder import candidates
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.requests import from_offers
from tests.planner.small_problems import limited_problems, solved, three_types

MODEL = builtin_models().get("Llama-3.1-8B")


def per_bucket(**changes: object) -> tuple[tuple[Work, ...], PlanRequest]:
    request = PlanRequest.model_validate({**from_offers(**changes), "replay": None})
    return works_of(request), request


def works_of(request: PlanRequest) -> tuple[Work, ...]:
    found = candidates(request, gpus=builtin_gpus(), models=builtin_models(), offers=request.offers or ())
    (own,) = work(request, found)
    assert own is not None
    return own


def trace(rows: list[tuple[int, int]], *, every_s: float = 1.0) -> dict[str, object]:
    body = "".join(f"{number * every_s},{inputs},{outputs}\n" for number, (inputs, outputs) in enumerate(rows))
    return {
        "trace_csv": f"time,input_tokens,output_tokens\n{body}",
        "input_tokens": [500, 4000],
        "output_tokens": [500],
    }


class TestSizes:
    def test_a_histogram_bucket_counts_its_smallest_request(self) -> None:
        own, _ = per_bucket()
        assert own == tuple(request_work(MODEL, input_tokens=tokens, output_tokens=1) for tokens in (1, 501))

    def test_a_trace_bucket_counts_the_mean_of_its_own_requests(self) -> None:
        rows = [(100, 40), (300, 80), (900, 10)]
        own, _ = per_bucket(buckets=trace(rows), rate_rps=20)
        small = [request_work(MODEL, input_tokens=i, output_tokens=o) for i, o in rows[:2]]
        assert own[0].flops == pytest.approx(sum(part.flops for part in small) / 2)
        assert own[0].moved_bytes == pytest.approx(sum(part.moved_bytes for part in small) / 2)
        assert own[1] == request_work(MODEL, input_tokens=900, output_tokens=10)

    def test_the_bound_uses_the_mean_rate_only_where_a_replay_sizes_the_plan(self) -> None:
        demand = {"start": "2026-11-01T00:00:00Z", "step_s": 60, "rates_rps": [5, 15]}
        fields = from_offers(rate_rps=None, demand=demand)
        steady = works_of(PlanRequest.model_validate(fields))
        replayed = works_of(PlanRequest.model_validate({**fields, "replay": {"hours": 1}}))
        validated = works_of(PlanRequest.model_validate({**fields, "replay": {"hours": 1, "size": False}}))
        assert validated == steady
        assert [part.flops for part in replayed] == pytest.approx([part.flops * 10 / 15 for part in steady])


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 2000)), min_size=1, max_size=20))
def test_the_mean_work_equals_the_mean_over_requests(rows: list[tuple[int, int]]) -> None:
    inputs, outputs = (np.array(column) for column in zip(*rows, strict=True))
    mean = mean_work(MODEL, input_tokens=inputs, output_tokens=outputs)
    each = [request_work(MODEL, input_tokens=i, output_tokens=o) for i, o in rows]
    assert mean.flops == pytest.approx(sum(part.flops for part in each) / len(each))
    assert mean.moved_bytes == pytest.approx(sum(part.moved_bytes for part in each) / len(each))
    assert min(mean.flops, mean.moved_bytes) >= 0


def bound_of(problem: MixProblem, **more: object) -> IdealBound:
    hardware = [Hardware(1e15, 1e12)] * len(problem.options)
    return find_ideal_bound(problem, solved(problem), hardware=hardware, work=[None] * len(problem.loads), **more)


class TestSchedulerBound:
    @given(limited_problems())
    def test_no_plan_costs_less_than_the_bound(self, problem: MixProblem) -> None:
        plan, bound = solved(problem), bound_of(problem)
        if plan.cost_usd_per_h is not None:
            assert bound.scheduler.cost_usd_per_h <= plan.cost_usd_per_h + 1e-6
            assert bound.scheduler.gpus <= sum(plan.replicas)
            assert bound.above_scheduler is None or bound.above_scheduler >= -1e-9

    @given(limited_problems(), st.lists(st.floats(0.2, 3), min_size=4, max_size=4))
    def test_no_plan_costs_less_than_the_bound_at_any_utilisation(
        self, problem: MixProblem, utilisations: list[float]
    ) -> None:
        loads = tuple(
            replace(load, utilisation=utilisations[w % len(utilisations)]) for w, load in enumerate(problem.loads)
        )
        filled = replace(problem, loads=loads)
        plan, bound = solved(filled), bound_of(filled)
        if plan.cost_usd_per_h is not None:
            assert bound.scheduler.cost_usd_per_h <= plan.cost_usd_per_h + 1e-6
            assert bound.scheduler.gpus <= sum(plan.replicas)
            assert bound.above_scheduler is None or bound.above_scheduler >= 0
            assert "-" not in as_text(bound)

    def test_a_utilisation_above_1_lowers_the_scheduler_bound(self) -> None:
        problem = mix_of(
            (Load("w", (6.0,), utilisation=1.5),), (Supply("f", 1.0),), (RoutedOption("o", "A", 0, 0, (1.0,)),)
        )
        bound = bound_of(problem)
        assert (bound.plan_gpus, bound.scheduler.gpus, bound.above_scheduler) == (4, 4, 0.0)

    def test_each_bucket_is_served_where_it_costs_least(self) -> None:
        problem = three_types()
        rates = (12.0, 3.0, 9.0, 6.0)
        per_type = [
            [rate / max_rps * price if max_rps else float("inf") for rate, max_rps in zip(rates, table, strict=True)]
            for price, table in (
                (0.75, (2.4, 0.7, 1.1, 0.0)),
                (2.79, (13.0, 4.2, 6.5, 2.6)),
                (4.29, (26.0, 8.0, 14.0, 5.5)),
            )
        ]
        assert bound_of(problem).scheduler.cost_usd_per_h == pytest.approx(sum(map(min, zip(*per_type, strict=True))))

    def test_gpu_types_that_cannot_serve_every_bucket_are_absent(self) -> None:
        alone = bound_of(three_types()).scheduler.gpus_of_one_type
        assert set(alone) == {"A100", "H100"}
        assert alone["H100"] == pytest.approx(12 / 26 + 3 / 8 + 9 / 14 + 6 / 5.5)

    def test_the_gpus_of_each_replica_are_counted(self) -> None:
        problem = mix_of(
            (Load("w", (4.0,)),), (Supply("f", 8.0, slots=8),), (RoutedOption("o", "A", 0, 0, (1.0,), slots=2),)
        )
        bound = find_ideal_bound(problem, hardware=[Hardware(1.0, 1.0, gpus=2)], work=[None])
        assert (bound.scheduler.gpus, bound.scheduler.cost_usd_per_h, bound.plan_gpus) == (8, 8.0, None)

    def test_both_legs_of_a_disaggregated_route_are_counted(self) -> None:
        problem = mix_of(
            (Load("w", (4.0,)),),
            (Supply("p", 1.0), Supply("d", 2.0)),
            (RoutedOption("p", "A", 0, 0, (4.0,)), RoutedOption("d", "B", 0, 1, (2.0,))),
        )
        split = replace(problem, routes=(Route("p + d", 0, (Leg(0, (4.0,)), Leg(1, (2.0,)))),))
        assert bound_of(split).scheduler.cost_usd_per_h == pytest.approx(1.0 + 2 * 2.0)

    def test_a_plan_that_drops_demand_is_not_compared_with_the_bound(self) -> None:
        bound = bound_of(three_types(objective=SERVED, stock=(0, 0, 1)))
        assert (bound.above_scheduler, bound.plan_gpus) == (None, None)

    def test_zero_demand_has_a_bound_of_zero(self) -> None:
        bound = bound_of(three_types(rate_rps=0.0))
        assert (bound.scheduler.gpus, bound.scheduler.cost_usd_per_h, bound.above_scheduler) == (0, 0.0, None)


class TestWork:
    @pytest.mark.parametrize("name", ["Llama-3.1-8B", "Mixtral-8x7B", "DeepSeek-V3"])
    def test_each_token_uses_all_active_weights(self, name: str) -> None:
        model = _model(name)
        one = request_work(model, input_tokens=1, output_tokens=1)
        assert one.flops >= 2 * model.matmul_parameters
        assert one.moved_bytes == 0
        ten = request_work(model, input_tokens=5, output_tokens=6)
        assert ten.flops > 10 * 2 * model.matmul_parameters

    def test_attention_and_cache_traffic_match_hand_computed_values(self) -> None:
        model = _model("Llama-3.1-8B")
        work = request_work(model, input_tokens=100, output_tokens=3)
        pairs = sum(range(1, 103))  # 102 tokens pass; each attends to all tokens up to itself
        attention = 4 * model.layers * model.heads * model.head_dim * pairs
        assert work.flops == 2 * model.matmul_parameters * 102 + attention
        assert work.moved_bytes == model.kv_bytes_per_token(kv_bytes=2.0) * (101 + 102)

    def test_a_sliding_window_limits_cache_traffic_and_attention(self) -> None:
        whole = _model("Llama-3.1-8B")
        windowed = whole.model_copy(
            update={"kv_cache": tuple(part.model_copy(update={"window_tokens": 64}) for part in whole.kv_cache)}
        )
        long, short = (request_work(model, input_tokens=1000, output_tokens=100) for model in (whole, windowed))
        assert short.moved_bytes == whole.kv_bytes_per_token(kv_bytes=2.0) * 64 * 99
        assert short.flops < long.flops

    def test_longer_requests_never_need_fewer_operations(self) -> None:
        model = _model("Llama-3.1-8B")
        flops = [request_work(model, input_tokens=i, output_tokens=o).flops for i, o in ((9, 9), (9, 10), (10, 10))]
        assert flops == sorted(flops)


class TestSystemBound:
    @given(
        st.sampled_from(["L4", "A100-80GB-SXM", "H100-SXM", "B200"]),
        st.integers(1, 8000),
        st.integers(1, 2000),
        st.sampled_from([1, 2, 4, 8]),
    )
    def test_no_roofline_is_faster_than_the_bound(
        self, gpu: str, input_tokens: int, output_tokens: int, gpus: int
    ) -> None:
        """A replica that reaches half of peak compute needs at least as many GPUs as one that reaches all."""
        sheet, model = builtin_gpus().get(gpu), _model("Llama-3.1-8B")
        replica = Replica(model, sheet, gpus)
        batch = replica.largest_batch(input_tokens + output_tokens)
        if batch == 0:
            return
        state = steady_state(replica, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
        problem = MixProblem(
            (Load("w", (10.0,)),),
            (Supply("f", 1.0, slots=gpus),),
            (ReplicaOption("o", gpu, 0, slots=gpus),),
            (Route("o", 0, (Leg(0, (state.rate_rps,)),)),),
        )
        hardware = Hardware(sheet.dense_tflops["bf16"] * 1e12, sheet.bandwidth_gb_per_s * 1e9, gpus)
        work = request_work(model, input_tokens=input_tokens, output_tokens=output_tokens)
        bound = find_ideal_bound(problem, hardware=[hardware], work=[[work]])
        assert bound.system is not None
        assert bound.system.cost_usd_per_h <= bound.scheduler.cost_usd_per_h
        assert bound.system.gpus <= bound.scheduler.gpus

    def test_the_more_expensive_of_arithmetic_and_traffic_counts(self) -> None:
        problem = mix_of(
            (Load("w", (10.0,)),),
            (Supply("a", 1.0), Supply("b", 3.0)),
            (RoutedOption("a", "A", 0, 0, (1.0,)), RoutedOption("b", "B", 0, 1, (1.0,))),
        )
        hardware = [Hardware(100.0, 10.0), Hardware(200.0, 50.0)]
        bound = find_ideal_bound(problem, hardware=hardware, work=[[Work(60.0, 10.0)]])
        assert bound.system is not None
        assert bound.system.gpus_of_one_type == {"A": 10.0, "B": 3.0}
        assert bound.system.gpus == 3
        assert bound.system.cost_usd_per_h == pytest.approx(max(600 / 100, 100 * 3 / 50))

    def test_a_plan_better_than_the_spec_sheets_has_no_system_bound(self) -> None:
        problem = mix_of((Load("w", (10.0,)),), (Supply("a", 1.0),), (RoutedOption("a", "A", 0, 0, (10.0,)),))
        kept, beaten = (
            find_ideal_bound(problem, solved(problem), hardware=[Hardware(flops, 1.0)], work=[[Work(60.0, 0.0)]])
            for flops in (600.0, 100.0)
        )
        assert kept.system is not None
        assert (kept.system.gpus, kept.above_system) == (1, 0.0)
        assert (beaten.system, beaten.above_system) == (None, None)

    def test_the_text_states_the_bound_and_the_distance_of_the_plan(self) -> None:
        problem = three_types()
        bound = bound_of(problem)
        assert as_text(bound).startswith(
            "no scheduler with these rates could do with less than 3 GPUs, the plan has 4, or "
        )
        assert f"(the plan is {bound.above_scheduler:.1%} above)" in as_text(bound)


def _model(name: str) -> ModelArchitecture:
    return builtin_models().get(name)
