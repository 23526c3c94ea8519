"""The rank at fault is found from dumps alone, and its victims are not named."""

import json

import pytest

from faults.detector import Job
from faults.diagnosis import FaultClass, Scope
from faults.hangs.dumps import DumpFindings, Reason, find_causes
from faults.job_state import GroupProgress
from faults.job_state.groups import Pending
from faults.observations import Observation
from faults.readers import ParseErrors, Recording, read_loose
from faults.readers.flight import parse_dump
from faults.replay import replay
from tests.testbed.stopped_job_cases import Case, random_case
from tests.testbed.stopped_jobs import Shape, Stop, StoppedJob

Progress = tuple[int, int]  # entered, finished


def group(
    of: dict[int, Progress],
    *,
    since_s: float = 1.0,
    op: str = "all_reduce",
    members: set[int] | None = None,
    started: dict[int, int] | None = None,
    called_s: dict[int, float] | None = None,
) -> GroupProgress:
    return GroupProgress(
        members or set(of),
        entered={rank: entered for rank, (entered, _) in of.items()},
        finished={rank: finished for rank, (_, finished) in of.items()},
        pending={rank: Pending(op, since_s) for rank, (entered, finished) in of.items() if entered > finished},
        started=started or {},
        called_s=called_s or {},
    )


def causes(groups: dict[str, GroupProgress], *, reporting: set[int] | None = None) -> dict[int, Reason]:
    return {cause.rank: cause.reason for cause in findings(groups, reporting=reporting).causes}


def findings(groups: dict[str, GroupProgress], *, reporting: set[int] | None = None) -> DumpFindings:
    everybody = {rank for each in groups.values() for rank in each.members}
    return find_causes(groups, reporting=everybody if reporting is None else reporting)


def test_a_job_without_an_unfinished_operation_has_no_cause() -> None:
    found = findings({"0": group({0: (5, 5), 1: (5, 5)})})
    assert (found.causes, found.waits) == ((), ())


def test_the_rank_that_has_not_called_is_the_cause() -> None:
    assert causes({"0": group({0: (5, 4), 1: (4, 4), 2: (5, 4)})}) == {1: Reason.NOT_CALLED}


def test_a_rank_that_waits_in_another_group_is_a_victim() -> None:
    groups = {"0": group({0: (5, 4), 1: (4, 4)}), "1": group({1: (9, 8), 2: (8, 8)})}
    assert causes(groups) == {2: Reason.NOT_CALLED}


def test_a_rank_that_has_not_finished_what_its_peers_finished_is_the_cause_although_it_waits() -> None:
    groups = {
        "0": group({0: (9, 5), 1: (9, 7)}),
        "1": group({0: (4, 3), 2: (4, 3)}),  # the peers of the cause wait in a later operation
    }
    assert causes(groups) == {0: Reason.NOT_FINISHED}


def test_the_receivers_of_a_broadcast_may_finish_after_its_root() -> None:
    assert causes({"0": group({0: (5, 5), 1: (5, 4)}, op="broadcast")}) == {}


def test_a_rank_that_called_another_operation_than_its_peers_is_the_cause() -> None:
    of = group({0: (5, 4), 1: (5, 4), 2: (5, 4)})
    of.pending[1] = Pending("broadcast", 1.0)
    (cause,) = findings({"0": of}).causes
    assert (cause.rank, cause.reason, cause.op, cause.waiting) == (1, Reason.OTHER_OPERATION, "broadcast", 2)
    assert not cause.sure


def test_of_two_ranks_with_different_operations_none_is_named() -> None:
    of = group({0: (5, 4), 1: (5, 4)})
    of.pending[1] = Pending("broadcast", 1.0)
    assert causes({"0": of}) == {}


def test_the_rank_whose_device_has_not_started_is_the_cause() -> None:
    groups = {"0": group({0: (5, 4), 1: (5, 4), 2: (5, 4)}, started={0: 5, 1: 4, 2: 5})}
    assert causes(groups) == {1: Reason.NOT_STARTED}


def test_without_times_of_the_device_a_stuck_group_has_no_cause() -> None:
    found = findings({"0": group({0: (5, 4), 1: (5, 4)}, started={0: 0, 1: 0})})
    assert found.causes == ()
    assert found.waiting == 2


def test_a_receive_that_was_posted_early_does_not_excuse_a_rank() -> None:
    groups = {
        # Rank 0 posted a receive from rank 2 early, then called another operation; rank 2 waits for rank 0.
        "9 2->0": group({0: (1, 0)}, members={0, 2}, op="recv 0<-1", called_s={0: 1.0}),
        "9 0->2": group({2: (1, 0)}, members={0, 2}, op="recv 1<-0", since_s=1.1, called_s={2: 1.1}),
        "1": group({0: (6, 6), 1: (7, 6)}, since_s=2.0, called_s={0: 1.5, 1: 2.0}),
    }
    assert causes(groups) == {0: Reason.NOT_CALLED}


def test_a_send_does_not_excuse_a_rank() -> None:
    groups = {
        "9 0->1": group({0: (1, 0)}, members={0, 1}, op="send 0->1"),
        "9 1->0": group({1: (1, 0)}, members={0, 1}, op="send 1->0", called_s={1: 1.0}),
        "1": group({0: (4, 4), 2: (5, 4)}),
        "2": group({1: (5, 4), 2: (5, 4), 0: (4, 4)}),
    }
    assert causes(groups) == {0: Reason.NOT_CALLED}


def test_the_only_rank_without_a_dump_is_named_as_a_guess() -> None:
    groups = {"0": group({0: (5, 4), 1: (5, 4)}, members={0, 1, 2})}
    found = findings(groups, reporting={0, 1})
    assert [(cause.rank, cause.reason, cause.sure) for cause in found.causes] == [(2, Reason.NO_DUMP, False)]


def test_of_two_ranks_without_a_dump_in_the_same_groups_none_is_named() -> None:
    groups = {"0": group({0: (5, 4), 1: (5, 4)}, members={0, 1, 2, 3})}
    assert causes(groups, reporting={0, 1}) == {}


def test_a_rank_without_a_dump_is_excused_by_a_known_cause() -> None:
    groups = {
        "0": group({0: (5, 4), 1: (5, 4)}, members={0, 1, 2}),
        "1": group({3: (7, 7), 4: (8, 7)}),
    }
    assert causes(groups, reporting={0, 1, 3, 4}) == {3: Reason.NOT_CALLED}


@pytest.mark.parametrize("seed", range(60))
def test_the_culprit_of_a_generated_job_is_named_alone(seed: int) -> None:
    case = random_case(50_000 + seed, max_ranks=64)
    found = replay(*_replayable(case))
    named = {each.rank for each in found if each.scope is Scope.RANK}
    assert case.stops.keys() - case.missing <= named <= case.stops.keys()
    assert {each.fault for each in found if each.rank is not None} <= {FaultClass.NONCOMM_HANG}


def test_a_culprit_without_a_dump_never_justifies_a_quarantine() -> None:
    shape = Shape(
        tensor=2, context=1, data=2, pipeline=2, expert=1, microbatches=4, layers=1, run_ahead=0, prefetch=False
    )
    job = StoppedJob(shape)
    job.stop(5, Stop.DEAD, after=0.5)
    job.run()
    ranks = [rank for rank in range(shape.ranks) if rank != 5]
    dumps = {rank: job.dump(rank, entries=100, timed=False, only_active=False, skew_s=0.0) for rank in ranks}
    (found,) = replay(*_replayable(Case(shape, {5: Stop.DEAD}, frozenset({5}), dumps)))
    assert (found.rank, found.isolate) == (5, False)
    assert "has no dump" in found.reason


def _replayable(case: Case) -> tuple[Job, tuple[Observation, ...]]:
    recording = _read(case)
    assert recording.malformed == {}
    assert recording.job.nodes == case.shape.ranks
    return recording.job, recording.observations


def _read(case: Case) -> Recording:
    tally = ParseErrors()
    dumps = [(rank, parse_dump(json.dumps(dump).encode(), tally=tally)) for rank, dump in case.dumps.items()]
    return read_loose(dumps, (), tally=tally)
