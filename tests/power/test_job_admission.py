"""Admission of queued jobs by power: limits of all domains, order, and the expected time."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from power.job_admission import Admitted, Decision, Domain, Held, Job, Rejected, RunningJob, decide, domains_of
from power.tree import PowerTree

ROWS = ("row-a", "row-b")
SITE = {
    "site": Domain(name="site", limit_w=1_500, rating_w=2_000),
    "row-a": Domain(name="row-a", parent="site", limit_w=1_000, rating_w=1_000),
    "row-b": Domain(name="row-b", parent="site", limit_w=800, rating_w=1_000),
}
CHAINS = {"row-a": ("row-a", "site"), "row-b": ("row-b", "site")}

watts = st.integers(1, 1_200).map(float)
some_rows = st.one_of(st.none(), st.sets(st.sampled_from(ROWS), min_size=1).map(frozenset))
jobs = st.lists(
    st.builds(
        Job,
        name=st.uuids().map(str),
        demand_w=watts,
        priority=st.integers(0, 2),
        created_at_s=st.integers(0, 3).map(float),
        rows=some_rows,
        ready=st.booleans(),
    ),
    max_size=8,
)
running_jobs = st.lists(
    st.builds(
        RunningJob,
        name=st.uuids().map(str),
        demand_w=watts,
        rows=st.sets(st.sampled_from(ROWS), min_size=1).map(frozenset),
        ends_at_s=st.one_of(st.none(), st.integers(0, 9).map(float)),
    ),
    max_size=4,
)


def job(name: str, demand_w: float, *, at_s: float = 0.0, priority: int = 0, row: str | None = None) -> Job:
    rows = None if row is None else frozenset({row})
    return Job(name=name, demand_w=demand_w, created_at_s=at_s, priority=priority, rows=rows)


def running(name: str, demand_w: float, row: str, *, ends_at_s: float | None = None) -> RunningJob:
    return RunningJob(name=name, demand_w=demand_w, rows=frozenset({row}), ends_at_s=ends_at_s)


def drawn_w(domain: str, before: Sequence[RunningJob], decisions: Sequence[Decision]) -> float:
    """Add up what a domain supplies after the decisions, with jobs of unknown row on each of theirs."""
    already_w = sum(each.demand_w for each in before if any(domain in CHAINS[row] for row in each.rows))
    return already_w + sum(d.job.demand_w for d in decisions if isinstance(d, Admitted) and domain in CHAINS[d.row])


@given(before=running_jobs, waiting=jobs)
def test_no_admission_exceeds_the_limit_of_any_domain(before: list[RunningJob], waiting: list[Job]) -> None:
    decisions = decide(SITE, ROWS, running=before, waiting=waiting)

    for each in decisions:
        if isinstance(each, Admitted):
            for domain in CHAINS[each.row]:
                limit_w = SITE[domain].limit_w
                assert limit_w is not None
                assert drawn_w(domain, before, decisions) <= limit_w


@given(before=running_jobs, waiting=jobs)
def test_no_job_takes_watts_that_an_earlier_one_waits_for(before: list[RunningJob], waiting: list[Job]) -> None:
    """With the later jobs left out, each decision is the same."""
    decisions = decide(SITE, ROWS, running=before, waiting=waiting)
    order = sorted(waiting, key=lambda each: (-each.priority, each.created_at_s, each.name))

    for count in range(len(order) + 1):
        first = decide(SITE, ROWS, running=before, waiting=order[:count])
        assert first == decisions[: len(first)]


@given(before=running_jobs, waiting=jobs)
def test_a_held_job_finds_at_least_its_demand_once_every_other_job_has_ended(
    before: list[RunningJob], waiting: list[Job]
) -> None:
    """No job waits forever: alone, it starts, unless the limit in force is below its demand."""
    for each in decide(SITE, ROWS, running=before, waiting=waiting):
        (alone,) = decide(SITE, ROWS, running=(), waiting=[each.job])
        fits = any(
            each.job.demand_w <= min(SITE[name].limit_w or 0.0 for name in CHAINS[row]) for row in each.job.rows or ROWS
        )
        assert isinstance(alone, Admitted) == fits


@given(waiting=jobs)
def test_only_jobs_above_every_rating_are_rejected(waiting: list[Job]) -> None:
    for each in decide(SITE, ROWS, running=(), waiting=waiting):
        assert isinstance(each, Rejected) == (each.job.demand_w > 1_000)


@given(before=running_jobs, waiting=jobs)
def test_an_expected_time_is_the_end_of_a_running_job(before: list[RunningJob], waiting: list[Job]) -> None:
    ends = {each.ends_at_s for each in before if each.ends_at_s is not None}
    for each in decide(SITE, ROWS, running=before, waiting=waiting):
        if isinstance(each, Held) and each.expected_at_s is not None:
            assert each.expected_at_s in ends


def test_a_job_goes_to_the_row_with_the_largest_headroom() -> None:
    first, second = decide(SITE, ROWS, running=(), waiting=[job("1", 600), job("2", 600, at_s=1.0)])

    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    assert (first.row, first.free_w, second.row, second.free_w) == ("row-a", 1_000, "row-b", 800)


def test_a_small_job_does_not_overtake_a_large_one_on_its_row_but_starts_elsewhere() -> None:
    waiting = [job("large", 900, row="row-a"), job("small", 100, at_s=1.0, row="row-a"), job("other", 100, at_s=2.0)]

    decisions = decide(SITE, ROWS, running=[running("r", 300, "row-a", ends_at_s=60.0)], waiting=waiting)

    large, small, other = decisions
    assert isinstance(large, Held)
    assert (large.row, large.free_w, large.expected_at_s, large.ahead) == ("row-a", 700, 60.0, ())
    assert isinstance(small, Held)
    assert (small.ahead, small.free_w) == (("large",), 700)
    assert isinstance(other, Admitted)
    assert other.row == "row-b"


def test_priority_precedes_creation() -> None:
    decisions = decide(SITE, ["row-a"], running=(), waiting=[job("early", 700), job("urgent", 700, at_s=9, priority=5)])
    assert [(each.job.name, type(each)) for each in decisions] == [("urgent", Admitted), ("early", Held)]


def test_a_cut_budget_ends_no_job_but_starts_none() -> None:
    cut = SITE | {"row-a": Domain(name="row-a", parent="site", limit_w=200, rating_w=1_000)}
    (held,) = decide(cut, ["row-a"], running=[running("r", 300, "row-a")], waiting=[job("1", 50)])
    assert isinstance(held, Held)
    assert held.free_w == -100


def test_what_other_loads_draw_is_not_available() -> None:
    held, admitted = (
        decide(SITE, ["row-a"], running=(), waiting=[job("1", 700), job("2", 50, at_s=1)], reserved_w={"row-a": 350}),
        decide(SITE, ["row-a"], running=(), waiting=[job("1", 650)], reserved_w={"row-a": 350}),
    )
    assert [type(each) for each in (*held, *admitted)] == [Held, Held, Admitted]


def test_a_row_without_any_limit_takes_no_job() -> None:
    unlimited = {"row": Domain(name="row")}
    (held,) = decide(unlimited, ["row"], running=(), waiting=[job("1", 50)])
    assert (type(held), held.row if isinstance(held, Held) else "") == (Held, None)


def test_a_job_on_a_row_that_is_no_longer_known_counts_on_every_row() -> None:
    decisions = decide(SITE, ROWS, running=[running("r", 900, "gone")], waiting=[job("1", 200)])
    assert [type(each) for each in decisions] == [Held]


@given(ends=st.lists(st.integers(1, 50).map(float), min_size=1, max_size=5, unique=True))
def test_a_longer_queue_is_expected_later(ends: list[float]) -> None:
    before = [running(str(end), 200, "row-a", ends_at_s=end) for end in ends]
    waiting = [job(str(at), 1_000 - 200 * at, at_s=-at) for at in range(5)]
    held = [d for d in decide(SITE, ["row-a"], running=before, waiting=waiting) if isinstance(d, Held)]
    times = [each.expected_at_s if each.expected_at_s is not None else float("inf") for each in held]
    assert all(early <= late for early, late in pairwise(times))


def test_the_limits_of_a_tree_are_its_smallest_and_a_budget_replaces_them() -> None:
    feeds = [
        {"name": "site", "kind": "ups", "limit_w": 9_000, "budget_w": [7_000, 6_000]},
        {"name": "row-a", "kind": "row", "parent": "site", "limit_w": 5_000},
        {"name": "row-b", "kind": "row", "parent": "site"},
    ]
    tree = PowerTree.model_validate({"periods": 2, "feeds": feeds})

    found = domains_of(tree, budgets_w={"row-a": 3_000.0, "row-b": 1_000.0})

    assert {name: (each.limit_w, each.rating_w, each.parent) for name, each in found.items()} == {
        "site": (6_000, 9_000, None),
        "row-a": (3_000, 5_000, "site"),
        "row-b": (1_000, None, "site"),
    }
