"""The room's one entry: whatever is asked, what comes back is a placement, no worse than what it began with."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.document import Placement
from placement.imbalance import imbalance
from placement.judgement import judged
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.migration import moved_copies
from placement.nearest import engine_imbalance
from placement.pipeline import MOVES_CEILING, TRAFFIC_CEILING, place
from placement.question import Question
from placement.tokens import TokenTrace
from placement.traffic import remote_nodes

ROUNDING = 1e-9


def ticks() -> Iterator[float]:
    """A clock that moves by a second whenever it is looked at."""
    at = 0.0
    while True:
        yield (at := at + 1.0)


def placed(question: Question) -> Placement:
    return place(question, version="1.2.3", clock_s=ticks().__next__)


def skewed(layers: int, experts: int, seed: int) -> ExpertLoads:
    rng = np.random.default_rng(seed)
    hot = np.arange(1, experts + 1) ** -0.7 * rng.lognormal(sigma=0.2, size=(layers, experts))
    return ExpertLoads.of(rng.permuted(hot * 10_000, axis=1).round() + 1)


def trace_of(loads: ExpertLoads, tokens: int, active: int, seed: int) -> TokenTrace:
    """Tokens that keep to one half of the experts."""
    rng = np.random.default_rng(seed)
    layers, half = len(loads.layers), loads.experts // 2
    halves = rng.integers(0, 2, size=(tokens, layers, 1)) * half
    chosen = np.array([rng.permutation(half)[:active] for _ in range(tokens * layers)]).reshape(tokens, layers, active)
    return TokenTrace.of(chosen + halves, experts_per_layer=loads.experts)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
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
        "rule": draw(st.sampled_from(["equal", "nearest"])),
    }


@settings(max_examples=40, deadline=None)
@given(questions())
def test_whatever_is_asked_is_answered_by_a_placement_above_its_bound(asked: dict[str, Any]) -> None:
    found = placed(Question(**asked))
    again = Placement.model_validate_json(found.model_dump_json())
    assert again == found
    tokens, layout = asked["loads"].total, asked["layout"]
    spread = imbalance(found.expert_of_slot, tokens, layout=layout, rule=Dispatch(asked["rule"]))
    assert found.imbalance.per_layer == pytest.approx(spread.per_layer)
    assert all(low <= have + ROUNDING for low, have in zip(found.bound.per_layer, spread.per_layer, strict=True))
    assert found.layout.slots_of_gpu.tolist() == layout.slots_of_gpu.tolist()


@settings(max_examples=15, deadline=None)
@given(questions(), st.integers(0, 20), st.integers(0, 999))
def test_moving_keeps_to_its_bound_and_is_never_for_the_worse(asked: dict[str, Any], moves: int, seed: int) -> None:
    now = placed(Question(**asked)).expert_of_slot
    later = skewed(len(asked["loads"].layers), asked["loads"].experts, seed)
    found = placed(Question(**asked | {"loads": later}, current=now, max_moves=moves))
    before = imbalance(now, later.total, layout=asked["layout"], rule=Dispatch(asked["rule"]))
    assert found.moved_copies == moved_copies(now, found.expert_of_slot, layout=asked["layout"])
    assert found.moved_copies is not None
    assert found.moved_copies <= moves
    assert found.imbalance.mean <= before.mean + ROUNDING
    if before.mean <= MOVES_CEILING:
        assert found.moved_copies == 0


def test_each_layer_gets_the_better_of_two_methods() -> None:
    loads = ExpertLoads.of([[600, 560, 120, 120, 20, 10, 10, 10], [5, 5, 5, 5, 5, 5, 5, 5]])
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    found = placed(Question(loads=loads, layout=layout))
    assert found.imbalance.per_layer == pytest.approx((1.0851, 1.0), abs=1e-3)
    alone = imbalance(balanced(loads.total, layout=layout), loads.total, layout=layout)
    assert all(found.imbalance.per_layer <= alone.per_layer + ROUNDING)


def test_traffic_is_less_and_the_ceiling_is_kept() -> None:
    loads, layout = skewed(2, 16, 3), Layout.even(slots=24, gpus=4, nodes=2)
    trace = trace_of(loads, 300, 4, 5)
    even, less = placed(Question(loads=loads, layout=layout)), placed(Question(loads=loads, layout=layout, trace=trace))
    before = remote_nodes(even.expert_of_slot, trace, layout=layout, rule=Dispatch.EQUAL).mean()
    assert less.remote_nodes_per_token is not None
    assert less.remote_nodes_per_token < before
    assert less.imbalance.mean <= max(TRAFFIC_CEILING, even.imbalance.mean) + ROUNDING
    assert less.remote_nodes is not None
    assert (less.remote_nodes.source, less.remote_nodes.trace_tokens) == ("trace", 300)


def test_what_an_engine_draws_can_be_planned_for() -> None:
    loads, layout = skewed(3, 32, 1), Layout.even(slots=48, gpus=8, nodes=2)
    plain = placed(Question(loads=loads, layout=layout, rule="nearest"))
    drawn = placed(Question(loads=loads, layout=layout, rule="nearest", engine="sglang"))
    real = engine_imbalance(drawn.expert_of_slot, loads.total, layout=layout, layers=loads.layers)
    assert drawn.imbalance.mean == pytest.approx(real.mean)
    assert plain.predictions.engine_imbalance is not None
    assert drawn.imbalance.mean <= plain.predictions.engine_imbalance.mean


def test_poor_bounds_come_with_what_more_slots_would_do() -> None:
    loads, layout = skewed(2, 16, 3), Layout.even(slots=16, gpus=16, nodes=2)
    found = placed(Question(loads=loads, layout=layout))
    more = found.predictions.redundancy
    assert more is not None
    assert more.slots % 16 == 0
    assert more.slots > 16
    assert more.bound_mean < found.bound.mean
    assert more.fp8_bytes_per_gpu is None
    wide = Layout.even(slots=more.slots, gpus=16, nodes=2)
    assert placed(Question(loads=loads, layout=wide)).bound.mean == pytest.approx(more.bound_mean)


def test_the_time_told_is_of_solving_alone() -> None:
    loads, layout = skewed(1, 8, 1), Layout.even(slots=8, gpus=2, nodes=1)
    assert placed(Question(loads=loads, layout=layout)).solve_s == 1.0


class TestJudging:
    LAYOUT = Layout.even(slots=24, gpus=4, nodes=2)

    def test_its_own_loads_are_what_was_promised(self) -> None:
        found = placed(Question(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        verdict = judged(found, found.expert_loads)
        assert verdict.holds
        assert verdict.imbalance == found.imbalance
        assert (verdict.moved_copies, verdict.promised) == (0, found.imbalance.mean)

    def test_other_loads_make_it_stale_and_moves_mend_it(self) -> None:
        found = placed(Question(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        verdict = judged(found, skewed(3, 16, 2), ceiling=1.1)
        assert not verdict.holds
        assert verdict.after_moves <= 1.1 + ROUNDING < verdict.imbalance.mean
        assert verdict.fresh <= verdict.after_moves + ROUNDING
        assert 0 < verdict.moved_copies <= verdict.fresh_moved_copies

    def test_several_windows_say_what_comes_next(self) -> None:
        found = placed(Question(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        first, last = skewed(3, 16, 1).total, skewed(3, 16, 2).total
        drifting = np.stack([first + (last - first) * part for part in (0.0, 0.2, 0.4)])
        verdict = judged(found, ExpertLoads.of(drifting), ceiling=1.05)
        assert verdict.expected
        assert all(mean >= 1.0 for mean in verdict.expected)
        assert verdict.act_in == 0

    def test_loads_of_another_model_are_refused(self) -> None:
        found = placed(Question(loads=skewed(3, 16, 1), layout=self.LAYOUT))
        with pytest.raises(RuleError, match="must have 16 experts per layer, as the placement, got 8"):
            judged(found, skewed(3, 8, 1))
        with pytest.raises(RuleError, match="must have the placement's 3 layers"):
            judged(found, skewed(2, 16, 1))
