"""The schedule: experts stay available, no link is overloaded, batches raise the imbalance only if unavoidable."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import Links, minimise_moves, moved_copies, schedule_moves
from placement.migration.moves import in_kept_slots
from placement.migration.schedule import Batch, Schedule
from placement.validation import check_slots
from tests.placement.migration.placements import drifted, loads, placement

LAYOUT = Layout.even(slots=24, gpus=6, nodes=2)
LINKS = Links(gpu_gb_per_s=40, node_gb_per_s=80, share=0.25)
EXPERT_BYTES = 44e6


def _planned(before: Ints, after: Ints, tokens: Floats, *, copies: int = 4, links: Links = LINKS) -> Schedule:
    return schedule_moves(
        before, after, tokens, layout=LAYOUT, expert_bytes=EXPERT_BYTES, links=links, copies_per_batch=copies
    )


def _walked(before: Ints, after: Ints, schedule: Schedule) -> list[tuple[Ints, Batch]]:
    """The placement before each batch."""
    row, states = before.copy(), []
    for batch in schedule.batches:
        states.append((row.copy(), batch))
        row[batch.layer, list(batch.slots)] = after[batch.layer, list(batch.slots)]
    return states


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_batches_reach_the_target_through_legal_placements(seed: int, copies: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (placement(rng, layers=2, experts=18, layout=LAYOUT) for _ in range(2))
    after = in_kept_slots(after, before, layout=LAYOUT)
    tokens = loads(rng, layers=2, experts=18)
    schedule = _planned(before, after, tokens, copies=copies)
    row = before.copy()
    for batch in schedule.batches:
        row[batch.layer, list(batch.slots)] = after[batch.layer, list(batch.slots)]
        check_slots(row, experts=18, layout=LAYOUT)
        assert batch.mean_imbalance == pytest.approx(imbalance(row, tokens, layout=LAYOUT).mean)
    assert row.tolist() == after.tolist()
    assert schedule.moved_bytes == moved_copies(before, after, layout=LAYOUT) * EXPERT_BYTES


@given(st.integers(0, 10**6))
def test_copies_are_loaded_from_live_ones_and_every_expert_stays_available(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (placement(rng, layers=2, experts=18, layout=LAYOUT) for _ in range(2))
    after = in_kept_slots(after, before, layout=LAYOUT)
    for row, batch in _walked(before, after, _planned(before, after, loads(rng, layers=2, experts=18))):
        live = row[batch.layer]
        for expert, source in zip(after[batch.layer, list(batch.slots)], batch.sources, strict=True):
            assert expert in live[LAYOUT.gpu_of_slot == source]
        kept = np.delete(live, list(batch.slots))
        away = set(live.tolist()) - set(kept.tolist())
        assert batch.beside == bool(away)


@given(st.integers(0, 10**6), st.floats(1, 100), st.floats(1, 100), st.floats(0.05, 1))
def test_no_link_exceeds_its_share_of_bandwidth(seed: int, gpu_gb: float, node_gb: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    links = Links(gpu_gb_per_s=gpu_gb, node_gb_per_s=node_gb, share=share)
    before, after = (placement(rng, layers=2, experts=18, layout=LAYOUT) for _ in range(2))
    after = in_kept_slots(after, before, layout=LAYOUT)
    schedule = _planned(before, after, loads(rng, layers=2, experts=18), links=links)
    clock_s = 0.0
    for batch in schedule.batches:
        assert batch.start_s == clock_s
        gpu_out, gpu_in, node_out, node_in = np.zeros((4, LAYOUT.gpus))
        for slot, source in zip(batch.slots, batch.sources, strict=True):
            here = int(LAYOUT.gpu_of_slot[slot])
            if source != here:
                gpu_out[source] += EXPERT_BYTES
                gpu_in[here] += EXPERT_BYTES
                if LAYOUT.node_of_gpu[source] != LAYOUT.node_of_gpu[here]:
                    node_out[LAYOUT.node_of_gpu[source]] += EXPERT_BYTES
                    node_in[LAYOUT.node_of_gpu[here]] += EXPERT_BYTES
        room_s = batch.end_s - batch.start_s
        assert max(gpu_out.max(), gpu_in.max()) <= gpu_gb * 1e9 * share * room_s * (1 + 1e-9)
        assert max(node_out.max(), node_in.max()) <= node_gb * 1e9 * share * room_s * (1 + 1e-9)
        clock_s = batch.end_s
    assert schedule.duration_s == clock_s


def test_no_batch_of_a_small_migration_raises_the_imbalance() -> None:
    rng = np.random.default_rng(3)
    tokens = loads(rng, layers=6, experts=18)
    before = balanced(tokens, layout=LAYOUT)
    later = drifted(rng, tokens)
    found = minimise_moves(before, later, layout=LAYOUT, ceiling=1.05)
    schedule = _planned(before, found, later, copies=24)
    now, after = (imbalance(placed, later, layout=LAYOUT).mean for placed in (before, found))
    means = [now, *(batch.mean_imbalance for batch in schedule.batches)]
    assert len(means) > 6
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(means))
    assert means[-1] == pytest.approx(after)


def test_the_batch_with_the_highest_gain_per_second_is_first() -> None:
    rng = np.random.default_rng(4)
    tokens = loads(rng, layers=2, experts=18)
    before = balanced(tokens, layout=LAYOUT)
    later = tokens.copy()
    later[0], later[1] = drifted(rng, tokens[0], by=0.05), drifted(rng, tokens[1], by=1.0)
    after = in_kept_slots(balanced(later, layout=LAYOUT), before, layout=LAYOUT)
    assert _planned(before, after, later).batches[0].layer == 1


def test_half_the_bandwidth_takes_twice_as_long() -> None:
    rng = np.random.default_rng(5)
    before, after = (placement(rng, layers=3, experts=18, layout=LAYOUT) for _ in range(2))
    after = in_kept_slots(after, before, layout=LAYOUT)
    tokens = loads(rng, layers=3, experts=18)
    full = _planned(before, after, tokens, links=Links(40, 80, share=0.5))
    half = _planned(before, after, tokens, links=Links(40, 80, share=0.25))
    assert half.duration_s == pytest.approx(2 * full.duration_s)


def test_an_unchanged_placement_takes_no_time() -> None:
    rng = np.random.default_rng(6)
    same = placement(rng, layers=2, experts=18, layout=LAYOUT)
    schedule = schedule_moves(
        same,
        same,
        loads(rng, layers=2, experts=18),
        layout=LAYOUT,
        rule=Dispatch.NEAREST,
        expert_bytes=EXPERT_BYTES,
        links=LINKS,
    )
    assert schedule.batches == ()
    assert schedule.duration_s == schedule.moved_bytes == 0


def test_an_invalid_argument_is_named() -> None:
    same, tokens = placement(np.random.default_rng(7), layers=1, experts=18, layout=LAYOUT), np.ones((1, 18))
    for wrong in ({"gpu_gb_per_s": 0}, {"node_gb_per_s": -1}, {"share": 1.5}, {"share": 0}):
        with pytest.raises(RuleError, match=next(iter(wrong))):
            Links(**{"gpu_gb_per_s": 1, "node_gb_per_s": 1, **wrong})
    with pytest.raises(RuleError, match="expert_bytes"):
        schedule_moves(same, same, tokens, layout=LAYOUT, expert_bytes=0, links=LINKS)
    with pytest.raises(RuleError, match="copies_per_batch"):
        schedule_moves(same, same, tokens, layout=LAYOUT, expert_bytes=1, links=LINKS, copies_per_batch=0)


def test_moves_over_different_links_share_a_batch() -> None:
    layout = Layout.even(slots=8, gpus=4, nodes=1)
    before, after = (np.array([[0, 4, 1, 5, *rest]]) for rest in ([2, 3, 2, 3], [0, 3, 2, 1]))
    tokens = np.array([[10.0, 8.0, 1.0, 1.0, 1.0, 1.0]])
    together, apart = (
        schedule_moves(
            before, after, tokens, layout=layout, expert_bytes=EXPERT_BYTES, links=LINKS, copies_per_batch=copies
        )
        for copies in (8, 1)
    )
    assert [batch.sources for batch in together.batches] == [(0, 1)]
    assert [batch.sources for batch in apart.batches] == [(0,), (1,)]
    assert apart.duration_s == pytest.approx(2 * together.duration_s) == pytest.approx(2 * 44e6 / 10e9)
    assert not together.batches[0].beside
