"""The order in which a free worker starts jobs."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from api.jobs.fairness import Starts, next_job
from api.store import QueuedJob


def job(number: int, *, project: str = "default", caller: str = "a", parent: str | None = None) -> QueuedJob:
    return QueuedJob(id=f"{number:04}", project=project, created_by=caller, parent=parent)


def order(queued: list[QueuedJob], *, slots: int) -> list[QueuedJob]:
    """Start jobs until none waits; the oldest running one ends whenever all slots are busy."""
    starts, running, started = Starts(), list[QueuedJob](), list[QueuedJob]()
    while queued:
        if len(running) == slots:
            running.pop(0)
        starts.forget(queued)
        chosen = next_job(queued, running=running, starts=starts)
        assert chosen is not None
        queued = [each for each in queued if each != chosen]
        starts.add(chosen)
        running.append(chosen)
        started.append(chosen)
    return started


def test_nothing_waits() -> None:
    assert next_job([], running=[], starts=Starts()) is None


def test_one_caller_is_served_in_the_order_of_its_requests() -> None:
    jobs = [job(number) for number in (3, 1, 2)]
    assert [each.id for each in order(jobs, slots=1)] == ["0001", "0002", "0003"]


def test_a_long_queue_of_one_caller_delays_another_one_by_one_job() -> None:
    jobs = [*(job(number, caller="many") for number in range(100)), job(100, caller="one")]
    started = order(jobs, slots=1)
    assert [each.created_by for each in started[:3]] == ["many", "one", "many"]


def test_the_points_of_a_sweep_delay_other_callers_and_other_jobs_of_its_own_by_one_job() -> None:
    points = [job(number, parent="sweep") for number in range(100)]
    started = order([*points, job(100), job(101, caller="one")], slots=1)
    assert {each.id for each in started[1:4]} >= {"0100", "0101"}


def test_a_project_with_many_callers_gets_no_larger_share() -> None:
    crowd = [job(number, project="crowd", caller=f"c{number}") for number in range(10)]
    alone = [job(number, project="alone", caller="x") for number in range(10, 15)]
    started = order([*crowd, *alone], slots=1)
    assert [each.project for each in started[:10]] == ["crowd", "alone"] * 5


callers = st.tuples(st.sampled_from("pqr"), st.sampled_from("abc"))


@given(st.lists(callers, max_size=40), st.integers(1, 4))
def test_every_job_starts_once_and_no_project_waits_for_another_twice(
    owners: list[tuple[str, str]], slots: int
) -> None:
    jobs = [job(number, project=project, caller=caller) for number, (project, caller) in enumerate(owners)]
    started = order(jobs, slots=slots)
    assert sorted(each.id for each in started) == sorted(each.id for each in jobs)
    # Between two starts of one project, every other project that still waits is served at most `slots` times more.
    for project in {each.project for each in jobs}:
        mine = [place for place, each in enumerate(started) if each.project == project]
        for before, after in itertools.pairwise(mine):
            others = [each.project for each in started[before + 1 : after]]
            assert all(others.count(other) <= slots for other in others)
