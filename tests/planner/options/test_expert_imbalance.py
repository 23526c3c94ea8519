"""Recorded expert loads in a request: the placements, the options, and the plan's report."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import validation_problems
from fleet.errors import DocumentError
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Slo
from placement.bounds import lower_bound
from placement.dispatch import Dispatch, gpu_loads
from placement.exact import incumbent
from placement.imbalance import imbalance
from placement.layout import Layout
from planner import PlanRequest
from planner.options.builder import candidates
from planner.options.enumeration import ConfigSpace, shapes
from planner.options.expert_imbalance import (
    ASSUMED_IMBALANCE,
    POOR_BOUND,
    ExpertSpread,
    SpreadSource,
    SpreadTable,
    spread_text,
)
from planner.performance.config import ReplicaConfig
from planner.performance.kv_memory import cache_sequences
from planner.performance.rates import highest_rates
from planner.request import Workload
from tests.planner.requests import from_offers, offer, solved

MODELS, GPUS = builtin_models(), builtin_gpus()
MIXTURE = MODELS.get("Qwen3-30B-A3B")  # 48 layers of 128 experts, 8 active
FEW = MODELS.get("Mixtral-8x7B")  # 32 layers of 8 experts, 2 active
H100 = GPUS.get("H100-SXM")
SLO = Slo.model_validate({"tpot_ms": {"mean": 100}, "ttft_ms": {"mean": 3000}})


def zipf(layers: int, experts: int, *, exponent: float, seed: int = 7, windows: int = 1) -> list[Any]:
    """Tokens [windows x] layers x experts of the given skew, with a random order of experts in each layer."""
    rng = np.random.default_rng(seed)
    ranks = 1e4 * (1.0 + np.arange(experts)) ** -exponent
    tables = np.array([[rng.permutation(ranks) for _ in range(layers)] for _ in range(windows)])
    return list((tables[0] if windows == 1 else tables).round(1).tolist())


def workload(**changes: Any) -> Workload:
    request = PlanRequest.model_validate(from_offers(model=MIXTURE.name, **changes))
    return request.workloads[0]


def spreads_of(**changes: Any) -> SpreadTable:
    return SpreadTable(workload(**changes), MIXTURE)


def problems(**changes: Any) -> dict[str, str]:
    """Field -> message of a refused workload."""
    with pytest.raises(ValidationError) as caught:
        workload(**changes)
    return {".".join(map(str, path[2:])): message for path, message in validation_problems(caught.value)}


def on_eight(model: str = MIXTURE.name, **changes: Any) -> dict[str, Any]:
    """A workload that only fits on hosts of eight GPUs."""
    return from_offers(model=model, **changes) | {"offers": [offer("here/h100x8", "H100-SXM", 20, gpus_per_instance=8)]}


class TestSourceOfImbalance:
    def test_the_default_is_assumed_without_any_loads(self) -> None:
        spread = spreads_of().of(gpus=8, slots=128)
        assert (spread.source, spread.expert_imbalance, spread.bound) == (SpreadSource.DEFAULT, ASSUMED_IMBALANCE, None)

    def test_a_given_imbalance_is_used(self) -> None:
        spread = spreads_of(expert_imbalance=1.6).of(gpus=8, slots=128)
        assert (spread.source, spread.expert_imbalance, spread.bound) == (SpreadSource.GIVEN, 1.6, None)

    def test_loads_give_the_imbalance_of_a_solved_placement(self) -> None:
        tokens = zipf(48, 128, exponent=0.8)
        spread = spreads_of(expert_loads={"tokens": tokens}).of(gpus=8, slots=136)
        layout = Layout.even(slots=136, gpus=8, nodes=1)
        placed = imbalance(incumbent(np.array(tokens), layout=layout), np.array(tokens), layout=layout)
        assert spread.source is SpreadSource.PLACED
        assert spread.redundant_experts == 8
        assert spread.expert_imbalance == pytest.approx(placed.mean, rel=1e-3)
        assert spread.bound == pytest.approx(lower_bound(np.array(tokens), layout=layout).clip(1).mean())

    def test_each_expert_layout_is_placed_once(self) -> None:
        table = spreads_of(expert_loads={"tokens": zipf(48, 128, exponent=0.6)})
        assert table.of(gpus=4, slots=128) is table.of(gpus=4, slots=128)
        assert table.of(gpus=4, slots=128) is not table.of(gpus=4, slots=132)


@given(
    exponent=st.floats(0.0, 2.0),
    seed=st.integers(0, 2**16),
    gpus=st.sampled_from([2, 4, 8]),
    spare=st.integers(0, 2),
    windows=st.integers(1, 3),
)
def test_no_imbalance_is_below_the_lower_bound(exponent: float, seed: int, gpus: int, spare: int, windows: int) -> None:
    loads = zipf(4, 16, exponent=exponent, seed=seed, windows=windows)
    model = MIXTURE.model_copy(update={"moe_layers": 4, "experts": 16})
    field = "tokens" if windows == 1 else "windows"
    spread = SpreadTable(workload(expert_loads={field: loads}), model).of(gpus=gpus, slots=16 + gpus * spare)
    assert spread.bound is not None
    assert 1 <= spread.bound <= spread.expert_imbalance
    total = np.array(loads).reshape(windows, 4, 16).sum(axis=0)
    layout = Layout.even(slots=spread.slots, gpus=gpus, nodes=1)
    assert spread.expert_imbalance >= imbalance(incumbent(total, layout=layout), total, layout=layout).mean - 1e-3


def test_the_bound_averages_the_busiest_gpu_of_each_window() -> None:
    """Two windows that are balanced together, but not individually."""
    model = MIXTURE.model_copy(update={"moe_layers": 1, "experts": 4})
    day, night = [[90.0, 90.0, 10.0, 10.0]], [[10.0, 10.0, 90.0, 90.0]]
    both = SpreadTable(workload(expert_loads={"windows": [day, night]}), model).of(gpus=4, slots=4)
    assert both.bound == pytest.approx(1.0)
    assert both.expert_imbalance == pytest.approx(1.8)


class TestThroughput:
    @given(low=st.floats(1.0, 3.0), more=st.floats(0.01, 2.0), width=st.sampled_from([2, 4, 8]))
    def test_throughput_falls_as_the_imbalance_rises(self, low: float, more: float, width: int) -> None:
        config = ReplicaConfig(
            MIXTURE, H100, attention_data_parallel=width, expert_parallel=width, expert_imbalance=low
        )
        rates = [
            highest_rates(one, SLO, sizes=[(1000, 250)], arrival_cv=1.0)[0].max_rps
            for one in (config, replace(config, expert_imbalance=low + more))
        ]
        assert rates[1] < rates[0]

    def test_redundant_experts_reduce_the_memory_of_the_cache(self) -> None:
        plain = ReplicaConfig(MIXTURE, H100, attention_data_parallel=8, expert_parallel=8)
        copied = replace(plain, redundant_experts=64)
        more_bytes = 64 / 128 * plain.expert_bytes / 8
        assert copied.weight_bytes_per_gpu == pytest.approx(plain.weight_bytes_per_gpu + more_bytes)
        assert cache_sequences(copied, 1000) < cache_sequences(plain, 1000)

    def test_redundant_experts_alone_do_not_raise_the_rate(self) -> None:
        plain = ReplicaConfig(MIXTURE, H100, attention_data_parallel=8, expert_parallel=8)
        rates = [
            highest_rates(replace(plain, redundant_experts=red), SLO, sizes=[(1000, 250)], arrival_cv=1.0)[0].max_rps
            for red in (0, 8, 64)
        ]
        assert all(fewer >= more for fewer, more in pairwise(rates))


class TestOptions:
    def test_redundant_experts_of_the_config_space_are_enumerated(self) -> None:
        config_space = ConfigSpace(redundant_experts=(0, 1))
        names = [shape.name(H100) for shape in shapes(MIXTURE, H100, gpus_per_instance=8, config_space=config_space)]
        assert {"tp1-dp8-ep8", "tp1-dp8-ep8-red8", "tp4-ep4-red4"} <= set(names)
        assert len(set(names)) == len(names)

    def test_without_redundant_experts_in_the_config_space_none_are_enumerated(self) -> None:
        names = [shape.name(H100) for shape in shapes(MIXTURE, H100, gpus_per_instance=8, config_space=ConfigSpace())]
        assert not any("red" in name for name in names)

    @pytest.mark.parametrize(("experts", "redundant"), [(60, {4, 12}), (128, {0, 8}), (9, {7, 15})])
    def test_slots_are_rounded_up_to_a_multiple_of_the_gpus(self, experts: int, redundant: set[int]) -> None:
        model = MIXTURE.model_copy(update={"experts": experts})
        config_space = ConfigSpace(redundant_experts=(0, 1))
        found = {
            shape.layout.redundant_experts
            for shape in shapes(model, H100, gpus_per_instance=8, config_space=config_space)
            if shape.layout.expert_parallel == 8
        }
        assert found == redundant
        assert all((experts + more) % 8 == 0 for more in found)

    def test_no_gpu_holds_an_expert_twice(self) -> None:
        config_space = ConfigSpace(redundant_experts=(0, 7, 8))
        found = {
            shape.layout.redundant_experts
            for shape in shapes(FEW, H100, gpus_per_instance=8, config_space=config_space)
        }
        assert max(found) == 8 * 8 - 8


class TestPlans:
    def test_the_plan_reports_the_imbalance_of_its_options(self) -> None:
        plan = solved(on_eight(rate_rps=150, expert_loads={"tokens": zipf(48, 128, exponent=0.8)}))
        spreads = plan.experts.get("chat", {})
        spreading = {entry.option for entry in plan.allocation if "-ep" in entry.option}
        assert spreads.keys() == spreading
        for option, spread in spreads.items():
            assert spread.source is SpreadSource.PLACED
            assert spread.slots == 128 + spread.redundant_experts
            assert any(line.startswith(f"{option}: {spread.slots} expert slots") for line in plan.explanation)

    def test_even_loads_cost_no_more_than_skewed_ones(self) -> None:
        costs = [
            solved(on_eight(FEW.name, rate_rps=400, expert_loads={"tokens": zipf(32, 8, exponent=exponent)})).goal_value
            for exponent in (0.0, 2.0)
        ]
        assert costs[0] is not None
        assert costs[1] is not None
        assert costs[0] <= costs[1]

    def test_the_rate_of_an_option_falls_as_its_loads_get_more_skewed(self) -> None:
        found: list[tuple[float, float]] = []
        for exponent in (0.0, 0.7, 1.4, 2.1):
            loads = {"tokens": zipf(32, 8, exponent=exponent)}
            request = PlanRequest.model_validate(
                on_eight(FEW.name, rate_rps=400, expert_loads=loads, redundant_experts=[0])
            )
            (option,) = (
                candidate
                for candidate in candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or ())
                if candidate.name == "here/h100x8/tp1-dp2-ep2"
            )
            assert option.spread is not None
            found.append((option.spread.expert_imbalance, option.throughput.max_rps[0][0]))
        assert all(
            more_uneven > less_uneven and slower < faster
            for (less_uneven, faster), (more_uneven, slower) in pairwise(found)
        )

    def test_loads_of_another_model_are_refused(self) -> None:
        with pytest.raises(DocumentError) as caught:
            solved(on_eight(expert_loads={"tokens": zipf(48, 64, exponent=0.5)}))
        (problem,) = caught.value.problems
        assert problem.path == "workloads[0].expert_loads"
        assert problem.message == "must be of 48 layers of 128 experts, as Qwen3-30B-A3B has, got 48 of 64"

    def test_loads_for_a_model_without_experts_are_refused(self) -> None:
        with pytest.raises(DocumentError, match="expert_loads: must be left out"):
            solved(on_eight("Llama-3.1-8B", expert_loads={"tokens": [[1.0, 2.0]]}))


class TestText:
    SPREAD = ExpertSpread(
        gpus=8,
        slots=8,
        redundant_experts=0,
        expert_imbalance=1.7,
        bound=1.6,
        source=SpreadSource.PLACED,
        enough_slots=16,
    )

    def test_a_poor_bound_is_reported_with_the_slots_that_improve_it(self) -> None:
        text = spread_text(self.SPREAD, "here/h100x8/tp8-ep8")
        assert "no placement has less than 1.600" in text
        assert "it takes 16 slots (1 more per GPU)" in text

    def test_a_bound_that_no_slots_improve_is_reported(self) -> None:
        text = spread_text(self.SPREAD.model_copy(update={"enough_slots": None}), "o")
        assert "up to 8 redundant experts per GPU do not bring that to 1.05" in text

    def test_a_good_bound_is_reported_without_advice(self) -> None:
        text = spread_text(self.SPREAD.model_copy(update={"bound": POOR_BOUND}), "o")
        assert text.endswith("no placement has less than 1.050")

    def test_the_advised_slots_improve_the_bound(self) -> None:
        loads = {"tokens": zipf(32, 8, exponent=1.0)}
        table = SpreadTable(workload(expert_loads=loads), FEW)
        poor = table.of(gpus=8, slots=8)
        assert poor.bound is not None
        assert poor.bound > POOR_BOUND
        assert poor.enough_slots is not None
        better = table.of(gpus=8, slots=poor.enough_slots)
        assert better.bound is not None
        assert better.bound <= POOR_BOUND
        assert better.enough_slots is None


class TestRequests:
    def test_one_table_is_one_window(self) -> None:
        tokens = zipf(2, 4, exponent=0.5)
        one = workload(expert_loads={"tokens": tokens}).expert_loads
        several = workload(expert_loads={"windows": [tokens, tokens]}).expert_loads
        assert one is not None
        assert several is not None
        assert (one.counts.windows, several.counts.windows) == (1, 2)
        assert several.counts.total.tolist() == (2 * one.counts.total).tolist()

    def test_idle_experts_may_be_counted_with_a_minimum_of_tokens(self) -> None:
        tokens = [[5.0, 0.0]]
        assert "expert_loads.tokens.0.1" in problems(expert_loads={"tokens": tokens})
        counted = workload(expert_loads={"tokens": tokens, "least_tokens": 1}).expert_loads
        assert counted is not None
        assert counted.counts.total.tolist() == [[5.0, 1.0]]

    @pytest.mark.parametrize(
        ("changes", "field", "message"),
        [
            ({"expert_loads": {}}, "expert_loads", "give either tokens or windows"),
            (
                {"expert_loads": {"tokens": [[1.0, 2.0], [1.0]]}},
                "expert_loads.tokens.1",
                "as many experts as the first",
            ),
            (
                {"expert_loads": {"windows": [[[1.0]], [[1.0], [1.0]]]}},
                "expert_loads.windows.1",
                "as many layers as the first",
            ),
            ({"expert_loads": {"tokens": [[1.0, -2.0]]}}, "expert_loads.tokens.0.1", "greater than or equal to 0"),
            ({"expert_loads": {"tokens": [["1"]]}}, "expert_loads.tokens.0.0", "expected a number"),
            ({"expert_loads": {"tokens": [[0.0, 0.0]]}}, "expert_loads.tokens.0", "a layer without any load"),
            (
                {"expert_loads": {"tokens": [[1.0, 2.0]]}, "expert_imbalance": 1.5},
                "expert_imbalance",
                "give either this or expert_loads",
            ),
            ({"redundant_experts": [1]}, "redundant_experts", "needs expert_loads"),
            ({"expert_loads": {"tokens": [[1.0]]}, "redundant_experts": [-1]}, "redundant_experts.0", "greater than"),
        ],
    )
    def test_an_invalid_field_is_named(self, changes: dict[str, Any], field: str, message: str) -> None:
        found = problems(**changes)
        assert message in found[field], found


def test_the_imbalance_is_that_of_equal_dispatch() -> None:
    """The imbalance of the plan equals that of the dispatch rule."""
    tokens = np.array(zipf(3, 8, exponent=1.0))
    layout = Layout.even(slots=16, gpus=4, nodes=1)
    loads = gpu_loads(incumbent(tokens, layout=layout), tokens, layout=layout, rule=Dispatch.EQUAL)
    spread = SpreadTable(
        workload(expert_loads={"tokens": tokens.tolist()}), FEW.model_copy(update={"moe_layers": 3})
    ).of(gpus=4, slots=16)
    assert spread.expert_imbalance == pytest.approx((loads.max(axis=1) / loads.mean(axis=1)).mean(), rel=1e-3)
