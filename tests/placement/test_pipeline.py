"""The entry of the package: every problem gets a legal placement, no worse than its start."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.document import Placement
from placement.drift.assessment import Terms, assess
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.migration import Levels, Window, moved_copies
from placement.nearest import balanced_nearest, engine_imbalance
from placement.pipeline import EVALUATION_TOKENS, MOVES_CEILING, TRAFFIC_CEILING, place
from placement.problem import Pace, PlacementProblem
from placement.token_trace import TokenTrace
from placement.traffic import remote_nodes, traffic_cost

ROUNDING = 1e-9


def ticks() -> Iterator[float]:
    """A clock that advances by a second per call."""
    at = 0.0
    while True:
        yield (at := at + 1.0)


def placed(problem: PlacementProblem) -> Placement:
    return place(problem, version="1.2.3", clock_s=ticks().__next__)


def skewed(layers: int, experts: int, seed: int) -> ExpertLoads:
    rng = np.random.default_rng(seed)
    hot = np.arange(1, experts + 1) ** -0.7 * rng.lognormal(sigma=0.2, size=(layers, experts))
    return ExpertLoads.of(rng.permuted(hot * 10_000, axis=1).round() + 1)


def trace_of(loads: ExpertLoads, tokens: int, active: int, seed: int) -> TokenTrace:
    """Tokens that use only one half of the experts."""
    rng = np.random.default_rng(seed)
    layers, half = len(loads.layers), loads.experts // 2
    halves = rng.integers(0, 2, size=(tokens, layers, 1)) * half
    chosen = np.array([rng.permutation(half)[:active] for _ in range(tokens * layers)]).reshape(tokens, layers, active)
    return TokenTrace.of(chosen + halves, experts_per_layer=loads.experts)


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    nodes, per_node, experts = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(4, 12))
    gpus = nodes * per_node
    each = draw(st.integers(-(-experts // gpus), experts))
    counts = [each] * gpus
    if draw(st.booleans()):
        counts = [draw(st.integers(max(1, each - 1), min(experts, each + 1))) for _ in range(gpus)]
    if sum(counts) < experts:
        counts = [each] * gpus
    speeds = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=gpus, max_size=gpus))
    return {
        "loads": skewed(draw(st.integers(1, 3)), experts, draw(st.integers(0, 999))),
        "layout": Layout.of(node_of_gpu=[gpu // per_node for gpu in range(gpus)], slots_of_gpu=counts, speeds=speeds),
        "rule": draw(st.sampled_from(Dispatch)),
    }


@given(problems())
def test_every_problem_gets_a_placement_above_its_bound(fields: dict[str, Any]) -> None:
    found = placed(PlacementProblem(**fields))
    again = Placement.model_validate_json(found.model_dump_json())
    assert again == found
    tokens, layout = fields["loads"].total, fields["layout"]
    spread = imbalance(found.expert_of_slot, tokens, layout=layout, rule=fields["rule"])
    assert found.imbalance.per_layer == pytest.approx(spread.per_layer)
    assert all(low <= have + ROUNDING for low, have in zip(found.bound.per_layer, spread.per_layer, strict=True))
    assert found.layout.slots_of_gpu.tolist() == layout.slots_of_gpu.tolist()


@settings(max_examples=15)
@given(problems(), st.integers(0, 20), st.integers(0, 999))
def test_moves_respect_max_moves_and_never_raise_the_imbalance(fields: dict[str, Any], moves: int, seed: int) -> None:
    now = placed(PlacementProblem(**fields)).expert_of_slot
    later = skewed(len(fields["loads"].layers), fields["loads"].experts, seed)
    found = placed(PlacementProblem(**fields | {"loads": later}, current=now, max_moves=moves))
    before = imbalance(now, later.total, layout=fields["layout"], rule=fields["rule"])
    assert found.moved_copies == moved_copies(now, found.expert_of_slot, layout=fields["layout"])
    assert found.moved_copies is not None
    assert found.moved_copies <= moves
    assert found.imbalance.mean <= before.mean + ROUNDING
    if before.mean <= MOVES_CEILING:
        assert found.moved_copies == 0


def test_each_layer_uses_the_better_of_two_methods() -> None:
    loads = ExpertLoads.of([[600, 560, 120, 120, 20, 10, 10, 10], [5, 5, 5, 5, 5, 5, 5, 5]])
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    found = placed(PlacementProblem(loads=loads, layout=layout))
    assert found.imbalance.per_layer == pytest.approx((1.0851, 1.0), abs=1e-3)
    alone = imbalance(balanced(loads.total, layout=layout), loads.total, layout=layout)
    assert all(found.imbalance.per_layer <= alone.per_layer + ROUNDING)


def test_traffic_is_reduced_within_the_imbalance_ceiling() -> None:
    loads, layout = skewed(2, 16, 3), Layout.even(slots=24, gpus=4, nodes=2)
    trace = trace_of(loads, 300, 4, 5)
    even, less = (
        placed(PlacementProblem(loads=loads, layout=layout)),
        placed(PlacementProblem(loads=loads, layout=layout, trace=trace)),
    )
    before = remote_nodes(even.expert_of_slot, trace, layout=layout, rule=Dispatch.EQUAL).mean()
    assert less.remote_nodes_per_token is not None
    assert less.remote_nodes_per_token < before
    assert less.imbalance.mean <= max(TRAFFIC_CEILING, even.imbalance.mean) + ROUNDING
    assert less.remote_nodes is not None
    assert (less.remote_nodes.source, less.remote_nodes.trace_tokens) == ("trace", 300)


def test_a_plan_for_sglang_is_balanced_under_its_random_choices() -> None:
    loads, layout = skewed(3, 32, 1), Layout.even(slots=48, gpus=8, nodes=2)
    plain = placed(PlacementProblem(loads=loads, layout=layout, rule=Dispatch.NEAREST))
    drawn = placed(PlacementProblem(loads=loads, layout=layout, rule=Dispatch.NEAREST, engine="sglang"))
    real = engine_imbalance(drawn.expert_of_slot, loads.total, layout=layout, layers=loads.layers)
    assert drawn.imbalance.mean == pytest.approx(real.mean)
    assert plain.predictions.engine_imbalance is not None
    assert drawn.imbalance.mean <= plain.predictions.engine_imbalance.mean


def test_poor_bounds_are_reported_with_redundancy_advice() -> None:
    loads, layout = skewed(2, 16, 3), Layout.even(slots=16, gpus=16, nodes=2)
    found = placed(PlacementProblem(loads=loads, layout=layout))
    more = found.predictions.redundancy
    assert more is not None
    assert more.slots % 16 == 0
    assert more.slots > 16
    assert more.bound_mean < found.bound.mean
    assert more.fp8_bytes_per_gpu is None
    wide = Layout.even(slots=more.slots, gpus=16, nodes=2)
    assert placed(PlacementProblem(loads=loads, layout=wide)).bound.mean == pytest.approx(more.bound_mean)


def test_solve_time_covers_only_the_solve() -> None:
    loads, layout = skewed(1, 8, 1), Layout.even(slots=8, gpus=2, nodes=1)
    assert placed(PlacementProblem(loads=loads, layout=layout)).solve_s == 1.0


def at(act_above: float, settle_at: float | None = None, **others: Any) -> Terms:
    return Terms(levels=Levels(act_above, settle_at or act_above), **others)


class TestAssessment:
    LAYOUT = Layout.even(slots=24, gpus=4, nodes=2)

    def test_the_planned_loads_give_the_planned_imbalance(self) -> None:
        found = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        assessment = assess(found, found.expert_loads)
        assert assessment.holds
        assert assessment.imbalance == found.imbalance
        assert (assessment.moved_copies, assessment.promised) == (0, found.imbalance.mean)

    def test_changed_loads_make_the_placement_stale_and_moves_restore_it(self) -> None:
        found = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        assessment = assess(found, skewed(3, 16, 2), terms=at(1.1))
        assert not assessment.holds
        assert assessment.after_moves <= 1.1 + ROUNDING < assessment.imbalance.mean
        assert assessment.fresh <= assessment.after_moves + ROUNDING
        assert 0 < assessment.moved_copies <= assessment.fresh_moved_copies

    def test_several_windows_give_a_forecast(self) -> None:
        found = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        first, last = skewed(3, 16, 1).total, skewed(3, 16, 2).total
        drifting = np.stack([first + (last - first) * part for part in (0.0, 0.2, 0.4)])
        assessment = assess(found, ExpertLoads.of(drifting))
        assert assessment.expected
        assert all(mean >= 1.0 for mean in assessment.expected)
        assert assessment.act_in == 0

    def test_loads_of_another_model_are_refused(self) -> None:
        found = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        with pytest.raises(RuleError, match="must have 16 experts per layer, as the placement, got 8"):
            assess(found, skewed(3, 8, 1))
        with pytest.raises(RuleError, match="must have the placement's 3 layers"):
            assess(found, skewed(2, 16, 1))

    def test_between_the_levels_moves_only_continue_and_do_not_start(self) -> None:
        found, loads = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT)), skewed(3, 16, 2)
        now = assess(found, loads).imbalance.mean
        waits = assess(found, loads, terms=at(now + 0.01, now - 0.05))
        goes_on = assess(found, loads, terms=at(now + 0.01, now - 0.05, under_way=True))
        acts = assess(found, loads, terms=at(now - 0.01, now - 0.05))
        assert [assessment.act for assessment in (waits, goes_on, acts)] == [False, True, True]
        assert f"not above {now + 0.01:.6g}" in waits.reason
        assert goes_on.after_moves <= now - 0.05 + ROUNDING

    def test_a_level_that_no_move_lowers_is_settled(self) -> None:
        hot = ExpertLoads.of([[40.0, *[1.0] * 15]])
        found = placed(PlacementProblem(loads=hot, layout=Layout.even(slots=16, gpus=4, nodes=1)))
        assert found.imbalance.mean > 2
        assessment = assess(found, hot)
        assert (assessment.act, assessment.holds, assessment.settled_at) == (False, False, found.imbalance.mean)
        assert "as it settled at" in assessment.reason

    def test_moves_are_started_only_if_they_pay(self) -> None:
        found, loads = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT)), skewed(3, 16, 2)
        pace = Pace(expert_bytes=10**9, move_gb_per_s=2.0)
        window = Window(window_s=1000, moe_share=0.5, slowdown=0.5)
        assessment = assess(found, loads, terms=at(1.1, pace=pace, window=window))
        gain_s = 1000 * 0.5 * (1 - assessment.after_moves / assessment.imbalance.mean)
        assert assessment.moves is not None
        assert assessment.gain_gpu_s == pytest.approx(gain_s * 4)
        assert assessment.cost_gpu_s == pytest.approx(assessment.moves.duration_s * 0.5 * 4)
        assert assessment.act
        short = Window(window_s=assessment.moves.duration_s * 0.5 / gain_s * 1000 * 1.4, moe_share=0.5, slowdown=0.5)
        kept = assess(found, loads, terms=at(1.1, pace=pace, window=short))
        assert (kept.act, kept.moved_copies) == (False, assessment.moved_copies)
        assert "1.5 times must be gained" in kept.reason


def test_more_expensive_links_carry_less_traffic() -> None:
    """Two pairs of nodes: near within a pair, far between pairs."""
    loads, near = skewed(3, 32, 4), 8.0
    costs = np.array([[0, 1, near, near], [1, 0, near, near], [near, near, 0, 1], [near, near, 1, 0]])
    trace = trace_of(loads, 400, 4, 5)
    problem = PlacementProblem(
        loads=loads, layout=Layout.even(slots=40, gpus=8, nodes=4), trace=trace, max_imbalance=1.2
    )
    plain, weighted = placed(problem), placed(replace(problem, node_costs=costs))
    plain_costs = traffic_cost(plain.expert_of_slot, trace, layout=problem.layout, rule=problem.rule, cost=costs)
    assert plain.remote_nodes is not None
    assert weighted.remote_nodes is not None
    assert plain.remote_nodes.cost_per_token is None
    assert weighted.remote_nodes.cost_per_token is not None
    assert weighted.remote_nodes.cost_per_token <= plain_costs.mean() + ROUNDING
    assert weighted.predictions.before.cost_per_token is not None
    assert weighted.remote_nodes.cost_per_token < weighted.predictions.before.cost_per_token
    assert Placement.model_validate_json(weighted.model_dump_json()).costs == pytest.approx(costs)


def test_under_the_nearest_rule_the_result_is_no_worse_than_the_balanced_plan() -> None:
    loads, layout = skewed(3, 32, 7), Layout.even(slots=48, gpus=24, nodes=3)
    found = placed(PlacementProblem(loads=loads, layout=layout, rule=Dispatch.NEAREST))
    alone = imbalance(balanced_nearest(loads.total, layout=layout), loads.total, layout=layout, rule=Dispatch.NEAREST)
    assert (np.array(found.imbalance.per_layer) <= alone.per_layer + ROUNDING).all()
    assert found.imbalance.mean < alone.mean


def test_modelled_traffic_is_measured_on_the_evaluation_tokens() -> None:
    loads = skewed(2, 32, 7)
    found = placed(
        PlacementProblem(loads=loads, layout=Layout.even(slots=40, gpus=8, nodes=2), groups=4, max_imbalance=1.1)
    )
    assert found.remote_nodes is not None
    assert (found.remote_nodes.source, found.remote_nodes.trace_tokens) == ("modelled", EVALUATION_TOKENS)


class TestSchedule:
    LAYOUT = Layout.even(slots=24, gpus=4, nodes=2)

    def migrated(self, **others: Any) -> Placement:
        start = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT)).expert_of_slot
        return placed(PlacementProblem(loads=skewed(3, 16, 2), layout=self.LAYOUT, current=start, **others))

    def test_the_batches_in_order_reach_the_target_placement(self) -> None:
        start = placed(PlacementProblem(loads=skewed(3, 16, 1), layout=self.LAYOUT)).expert_of_slot
        found = self.migrated(move_gb_per_s=2.0, expert_bytes=10**9)
        assert found.moves is not None
        row, clock_s = start.copy(), 0.0
        for batch in found.moves.batches:
            assert batch.start_s == clock_s
            slots = list(batch.slots)
            for slot, source in zip(slots, batch.sources, strict=True):
                expert = found.expert_of_slot[batch.layer, slot]
                stays = np.ones(self.LAYOUT.slots, dtype=np.bool_)
                stays[[] if batch.beside or source == self.LAYOUT.gpu_of_slot[slot] else slots] = False
                assert expert in row[batch.layer][(self.LAYOUT.gpu_of_slot == source) & stays]
            row[batch.layer, slots] = found.expert_of_slot[batch.layer, slots]
            even = imbalance(row, skewed(3, 16, 2).total, layout=self.LAYOUT).mean
            assert batch.imbalance == pytest.approx(even)
            clock_s = batch.end_s
        assert (row == found.expert_of_slot).all()
        assert found.moves.duration_s == clock_s
        assert found.moves.copies == found.moved_copies == sum(batch.copies for batch in found.moves.batches)
        assert found.moves.bytes == found.moves.copies * 10**9

    def test_slower_links_take_longer_and_nodes_limit_their_gpus(self) -> None:
        plain, slow, narrow = (
            self.migrated(expert_bytes=10**9, **rates).moves
            for rates in (
                {"move_gb_per_s": 2.0},
                {"move_gb_per_s": 1.0},
                {"move_gb_per_s": 2.0, "node_gb_per_s": 0.5},
            )
        )
        assert plain is not None
        assert slow is not None
        assert narrow is not None
        assert slow.duration_s == pytest.approx(2 * plain.duration_s)
        assert narrow.duration_s > plain.duration_s
        assert plain.node_gb_per_s == 4.0  # two GPUs per node

    @pytest.mark.parametrize(
        ("others", "message"),
        [
            ({"move_gb_per_s": 1.0}, "needs `expert_bytes` or `model`"),
            ({"move_gb_per_s": 0.0, "expert_bytes": 1}, "move_gb_per_s: must be above 0, got 0"),
            ({"node_gb_per_s": 1.0}, "needs `move_gb_per_s`"),
        ],
    )
    def test_violations_are_reported(self, others: dict[str, float], message: str) -> None:
        with pytest.raises(RuleError, match=message):
            self.migrated(**others)
