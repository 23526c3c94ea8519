"""The wait-for graph against a reference that walks every pair of ranks, and the cases of its docstring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.hangs.wait_for_graph import Memberships, Waits, wait_for

Job = tuple[int, list[list[int]], list[int], list[int], list[bool]]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Few ranks in few groups, anywhere in their operations, some without reports."""
    ranks = draw(st.integers(1, 6))
    groups = draw(st.lists(st.lists(st.integers(0, ranks - 1), unique=True, max_size=ranks), max_size=5))
    size = sum(map(len, groups))
    finished = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    entered = [done + draw(st.integers(0, 2)) for done in finished]
    reported = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return ranks, groups, entered, finished, reported


def waits_of(job: Job, alive: list[int] | None = None) -> Waits:
    ranks, groups, entered, finished, reported = job
    return wait_for(
        Memberships.of(groups, ranks=ranks),
        entered=np.array(entered, dtype=np.int64),
        finished=np.array(finished, dtype=np.int64),
        reported=np.array(reported, dtype=np.bool_),
        alive=None if alive is None else np.array(alive, dtype=np.int8),
    )


class ReferenceGraph:
    """The reference: walks from rank to rank, by the module's docstring."""

    def __init__(self, job: Job) -> None:
        self.ranks, groups, entered, finished, reported = job
        flat = iter(zip(entered, finished, reported, strict=True))
        self.groups = [{rank: next(flat) for rank in members} for members in groups]
        self.waiting: set[tuple[int, int]] = set()
        self.blockers: dict[tuple[int, int], set[int]] = {}
        self.lacking: dict[tuple[int, int], set[int]] = {}
        for number, members in enumerate(self.groups):
            passed = max((done for _, done, has_report in members.values() if has_report), default=-1)
            for rank, (came, done, has_report) in members.items():
                if has_report and came > done:
                    row = (number, rank)
                    self.waiting.add(row)
                    self.blockers[row] = {q for q, (e, _, h) in members.items() if h and e < done + 1}
                    unreported = {q for q, (_, _, h) in members.items() if not h}
                    self.lacking[row] = unreported if passed < done + 1 and not self.blockers[row] else set()
        self.blocked = {row for row in self.waiting if self.blockers[row]}
        self.uncertain = {row for row in self.waiting if not self.blockers[row] and self.lacking[row]}
        self.stuck = self.waiting - self.blocked - self.uncertain
        busy = {rank for _, rank in self.waiting}
        self.missing = {q for row in self.blocked for q in self.blockers[row]} - busy

    def ends_at(self, rows: set[tuple[int, int]]) -> set[int]:
        """Ranks from which a walk over blocked rows reaches a missing rank or one of those rows."""
        good = self.missing | {rank for _, rank in rows}
        while True:
            more = good | {rank for number, rank in self.blocked if self.blockers[(number, rank)] & good}
            if more == good:
                return good
            good = more

    def deadlocked(self) -> set[int]:
        return {rank for _, rank in self.blocked} - self.ends_at(self.stuck | self.uncertain)

    def grounded(self) -> tuple[set[tuple[int, int]], set[int]]:
        rows, excused = set(self.stuck), set[int]()
        while True:
            ends = self.missing | {rank for _, rank in rows}
            more = rows | {row for row in self.blocked if self.blockers[row] & ends}
            more |= {row for row in self.uncertain if excused & set(self.groups[row[0]])}
            by = excused | {rank for number, _ in more for rank in self.groups[number]}
            if (more, by) == (rows, excused):
                return rows, excused
            rows, excused = more, by

    def silent(self) -> set[int]:
        rows, excused = self.grounded()
        return {q for row in self.uncertain - rows for q in self.lacking[row]} - excused


@given(jobs())
def test_the_wait_for_graph_agrees_with_a_reference_that_walks_every_pair(job: Job) -> None:
    waits, reference = waits_of(job), ReferenceGraph(job)
    rows = [(number, rank) for number, members in enumerate(reference.groups) for rank in members]

    def marked(flags: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> set[tuple[int, int]]:
        return {row for row, flag in zip(rows, flags.tolist(), strict=True) if flag}

    assert marked(waits.waiting) == reference.waiting
    assert marked(waits.blocked) == reference.blocked
    assert marked(waits.uncertain) == reference.uncertain
    assert marked(waits.stuck) == reference.stuck
    assert set(waits.missing.tolist()) == reference.missing
    assert set(waits.deadlocked.tolist()) == reference.deadlocked()
    assert set(waits.silent.tolist()) == reference.silent()
    roots = waits.missing.size + waits.deadlocked.size + int(waits.stuck.sum()) + int(waits.uncertain.sum())
    assert (roots > 0) == waits.stall


def test_a_hang_through_two_groups_gives_the_rank_that_waits_in_neither() -> None:
    # All ranks, then pairs (0, 1) and (2, 3): rank 2 left after its pair's seventh operation.
    waits = waits_of((4, [[0, 1, 2, 3], [0, 1], [2, 3]], [8, 8, 7, 8, 7, 7, 7, 7], [7] * 8, [True] * 8))
    assert waits.missing.tolist() == [2]
    assert not waits.stuck.any()


def test_when_all_ranks_entered_and_none_finished_all_are_stuck() -> None:
    waits = waits_of((3, [[0, 1, 2]], [5, 5, 5], [4, 4, 4], [True] * 3))
    assert waits.stuck.all()
    assert waits.missing.size == waits.silent.size == 0


def test_operations_called_in_different_orders_are_a_deadlock() -> None:
    # 0 is in the first group and waits for 1, which is in the second and waits for 0.
    waits = waits_of((2, [[0, 1], [0, 1]], [1, 0, 0, 1], [0, 0, 0, 0], [True] * 4))
    assert waits.deadlocked.tolist() == [0, 1]
    assert waits.missing.size == 0


def test_a_silent_rank_is_excused_when_another_rank_explains_the_stall() -> None:
    # Rank 3 does not report; its partner 2 waits for missing rank 0, and rank 3 may wait too.
    waits = waits_of((4, [[0, 2, 3], [1, 3]], [0, 1, 0, 1, 0], [0] * 5, [True, True, False, True, False]))
    assert waits.missing.tolist() == [0]
    assert waits.silent.size == 0
    assert waits.excused.tolist() == [0, 2, 3] or 3 in waits.excused.tolist()


def test_silence_needs_confirmation_from_another_source() -> None:
    job: Job = (3, [[0, 1, 2]], [1, 1, 0], [0, 0, 0], [True, True, False])
    assert waits_of(job).silent.tolist() == [2]
    assert waits_of(job).confirmed.size == 0
    assert waits_of(job, alive=[1, 1, 1]).confirmed.size == 0
    assert waits_of(job, alive=[1, 1, 0]).confirmed.tolist() == [2]


def test_a_finished_rank_proves_that_all_entered() -> None:
    # 0 has finished operation 1, so the unreported 2 has called it: 1 waits for bytes.
    waits = waits_of((3, [[0, 1, 2]], [1, 1, 0], [1, 0, 0], [True, True, False]))
    assert waits.stuck.tolist() == [False, True, False]
    assert waits.silent.size == 0


def test_rows_without_a_report_do_not_hide_a_deadlock() -> None:
    """Ranks 0 and 1 wait for each other; an unreported row holds no observation."""
    groups = [[2, 0, 1], [0, 2], [1], [2, 0, 1]]
    entered, finished = [1, 2, 1, 0, 3, 1, 2, 0, 2], [1, 1, 1, 0, 2, 1, 1, 0, 1]
    reported = [False, True, True, False, True, True, True, True, True]
    assert waits_of((3, groups, entered, finished, reported)).deadlocked.tolist() == [0, 1]


def test_no_observations_give_no_culprit() -> None:
    assert not waits_of((1, [], [], [], [])).stall


def cluster(ranks: int) -> list[list[int]]:
    """Tensor groups of 8 in a node, pipelines of 8 nodes, data groups across them, experts over 8 of a data group."""
    ids = np.arange(ranks).reshape(-1, 8, 8)  # replica, stage, rail
    tensor = ids.reshape(-1, 8).tolist()
    pipeline = ids.transpose(0, 2, 1).reshape(-1, 8).tolist()
    data = ids.reshape(len(ids), 64).T.tolist()
    expert = [group[start : start + 8] for group in data for start in range(0, len(group), 8)]
    found: list[list[int]] = [*tensor, *pipeline, *data, *expert]
    return found


@pytest.mark.parametrize("culprit", [0, 4321, 16_383])
def test_one_of_16384_ranks_is_found_through_tensor_pipeline_data_and_expert_groups(culprit: int) -> None:
    ranks = 16_384
    rows = Memberships.of(cluster(ranks), ranks=ranks)
    entered, finished = stalled_progress(rows, culprit)
    reported = np.ones(len(rows), dtype=np.bool_)
    waits = wait_for(rows, entered=entered, finished=finished, reported=reported)
    assert waits.missing.tolist() == [culprit]
    assert waits.deadlocked.size == 0


def test_lost_agents_are_not_suspected_while_the_missing_rank_reports() -> None:
    ranks, culprit = 16_384, 4321
    rows = Memberships.of(cluster(ranks), ranks=ranks)
    entered, finished = stalled_progress(rows, culprit)
    lost = np.random.default_rng(5).random(ranks // 8) < 0.01
    lost[culprit // 8] = False
    waits = wait_for(rows, entered=entered, finished=finished, reported=~np.repeat(lost, 8)[rows.rank])
    assert waits.missing.tolist() == [culprit]
    assert waits.silent.size == 0


def test_a_missing_rank_with_a_lost_agent_is_silent_and_confirmed_by_its_liveness() -> None:
    ranks, culprit = 16_384, 4321
    rows = Memberships.of(cluster(ranks), ranks=ranks)
    entered, finished = stalled_progress(rows, culprit)
    lost = np.random.default_rng(5).random(ranks // 8) < 0.01
    lost[culprit // 8] = True
    alive = np.ones(ranks, dtype=np.int8)
    alive[8 * (culprit // 8) : 8 * (culprit // 8) + 8] = 0
    reported = ~np.repeat(lost, 8)[rows.rank]
    waits = wait_for(rows, entered=entered, finished=finished, reported=reported, alive=alive)
    assert waits.missing.size == 0
    assert culprit in waits.silent.tolist()
    assert set(waits.confirmed // 8) == {culprit // 8}


def stalled_progress(
    rows: Memberships, culprit: int
) -> tuple["np.ndarray[tuple[int, ...], np.dtype[np.int64]]", "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"]:
    """The progress of all ranks, in rounds of one operation per group, when `culprit` stops after ten of them.

    A rank calls its groups' operations in the order of the groups and waits in each.
    """
    order = np.lexsort((rows.group, rows.rank))
    first = np.searchsorted(rows.rank[order], np.arange(rows.ranks))
    per_rank = np.bincount(rows.rank, minlength=rows.ranks)
    done = np.full(rows.ranks, 10 * per_rank)  # finished operations of a rank over all its groups
    sizes = np.bincount(rows.group, minlength=rows.groups)
    while True:
        next_row = order[first + done % per_rank]
        calls = np.ones(rows.ranks, dtype=np.bool_)
        calls[culprit] = False
        at = rows.group[next_row]
        full = np.bincount(at[calls], minlength=rows.groups) == sizes
        through = calls & full[at] & (done < 12 * per_rank)
        if not through.any():
            break
        done = done + through
    finished = np.empty(len(rows), dtype=np.int64)
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - first[rows.rank[order]]
    finished[:] = done[rows.rank] // per_rank[rows.rank] + (place < done[rows.rank] % per_rank[rows.rank])
    entered = finished.copy()
    waits = np.ones(rows.ranks, dtype=np.bool_)
    waits[culprit] = False
    entered[next_row[waits]] += 1
    return entered, finished
