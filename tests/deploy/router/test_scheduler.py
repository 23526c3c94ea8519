"""The scheduler: weights of the plan, slots, priorities, power limits, and no lost requests."""

from collections import Counter
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from deploy.router.row_power import PowerAdmission
from deploy.router.scheduler import LOW_TURN, Arrival, Scheduler, Ticket
from deploy.router.settings import RouterSettings
from power.controls import Priority
from tests.deploy.router.tables import table, waiting_in

HIGH = Arrival(prompt_bytes=400)
LOW = Arrival(prompt_bytes=400, priority=Priority.LOW)


def started(scheduler: Scheduler, arrival: Arrival, count: int, *, now_s: float = 0.0) -> list[Ticket]:
    for _ in range(count):
        assert scheduler.arrive(arrival, now_s=now_s) is not None
    return scheduler.dispatch(now_s=now_s)


def routes_of(tickets: list[Ticket]) -> Counter[str | None]:
    return Counter(ticket.route for ticket in tickets)


def test_requests_are_split_by_the_weights() -> None:
    for requests in (10, 100, 1000):
        split = routes_of(started(Scheduler(table()), HIGH, requests))
        # Two columns, each within one request of its own share.
        assert abs(split["a"] - 0.7 * requests) <= 2


def test_new_weights_apply_from_the_next_start_without_lost_requests() -> None:
    scheduler = Scheduler(table())
    before = started(scheduler, HIGH, 100)
    scheduler.swap(table(version="p2", weights={"b": 0.5, "c": 0.5}))
    after = started(scheduler, HIGH, 100)
    assert abs(routes_of(after)["c"] - 50) <= 2
    for ticket in before + after:
        scheduler.done(ticket, output_tokens=10)
    assert scheduler.in_flight == {"b": 0, "c": 0}, "route a is removed with its last response"
    assert scheduler.table.version == "p2"


def test_requests_spill_from_a_full_route_and_are_marked() -> None:
    scheduler = Scheduler(table(slots={"a": 2, "b": 5}))
    tickets = started(scheduler, HIGH, 10)
    assert routes_of(tickets) == {"a": 2, "b": 5}
    assert sum(ticket.spilled for ticket in tickets) >= 3
    assert waiting_in(scheduler)[Priority.HIGH] == 3
    scheduler.done(tickets[0])
    assert len(scheduler.dispatch(now_s=1.0)) == 1


def test_high_priority_runs_first_and_low_priority_is_not_starved() -> None:
    scheduler = Scheduler(table(slots={"a": 0, "b": 0}))
    started(scheduler, LOW, 100)
    assert not started(scheduler, HIGH, 100)
    scheduler.swap(table())
    order = [ticket.arrival.priority for ticket in scheduler.dispatch(now_s=0.0)]
    assert order[: LOW_TURN - 1] == [Priority.HIGH] * (LOW_TURN - 1)
    assert order[: 10 * LOW_TURN].count(Priority.LOW) == 10


def test_low_priority_waits_for_power_and_high_priority_does_not() -> None:
    scheduler = Scheduler(table())
    scheduler.limit(PowerAdmission(row_w=980.0, step_w=5.0, low_limit_w=982.0, high_limit_w=990.0, patience_s=10.0))
    assert not started(scheduler, LOW, 1)
    assert len(started(scheduler, HIGH, 3)) == 2, "the third would exceed the limit of high priority"
    scheduler.limit(PowerAdmission(row_w=970.0, step_w=5.0, low_limit_w=982.0, high_limit_w=990.0, patience_s=10.0))
    assert [ticket.arrival.priority for ticket in scheduler.dispatch(now_s=1.0)] == [Priority.HIGH, Priority.LOW]


def test_a_low_priority_prompt_gets_the_high_limit_after_its_patience() -> None:
    scheduler = Scheduler(table())
    scheduler.limit(PowerAdmission(row_w=980.0, step_w=5.0, low_limit_w=982.0, high_limit_w=990.0, patience_s=10.0))
    assert not started(scheduler, LOW, 1)
    assert not scheduler.dispatch(now_s=9.9)
    assert len(scheduler.dispatch(now_s=10.0)) == 1


def test_a_full_queue_refuses_and_waiting_requests_expire() -> None:
    scheduler = Scheduler(table(slots={"a": 0, "b": 0}), RouterSettings(max_waiting=2, patience_s=5.0))
    tickets = [scheduler.arrive(HIGH, now_s=float(at)) for at in range(3)]
    assert tickets[2] is None
    assert not scheduler.expired(now_s=4.9)
    assert [ticket.number for ticket in scheduler.expired(now_s=5.0)] == [1]
    assert waiting_in(scheduler)[Priority.HIGH] == 1


def test_a_withdrawn_request_leaves_the_queue() -> None:
    scheduler = Scheduler(table(slots={"a": 0, "b": 0}))
    ticket = scheduler.arrive(HIGH, now_s=0.0)
    assert ticket is not None
    assert (scheduler.withdraw(ticket), scheduler.withdraw(ticket), waiting_in(scheduler)[Priority.HIGH]) == (
        True,
        False,
        0,
    )


def test_prompt_sizes_are_estimated_from_engine_token_counts() -> None:
    scheduler = Scheduler(table())
    (first,) = started(scheduler, Arrival(prompt_bytes=480), 1)
    assert first.row == 1, "120 tokens at four bytes each"
    scheduler.done(first, prompt_tokens=48, output_tokens=5)
    (second,) = started(scheduler, Arrival(prompt_bytes=480), 1)
    assert second.row == 0, "ten bytes per token, as the engine reported"


def test_a_prompt_of_token_ids_is_not_estimated() -> None:
    (ticket,) = started(Scheduler(table()), Arrival(prompt_bytes=10_000, prompt_tokens=7), 1)
    assert ticket.row == 0


OPS = st.lists(
    st.tuples(
        st.sampled_from(["high", "low", "start", "done", "leave", "swap", "give up", "watts"]),
        st.integers(0, 30),
        st.floats(0.0, 3.0),
    ),
    max_size=120,
)


@given(OPS)
def test_no_request_is_lost_or_sent_twice_and_slots_are_respected(ops: list[tuple[str, int, float]]) -> None:
    scheduler, now_s = Scheduler(table(slots={"a": 3, "b": 2}), RouterSettings(max_waiting=20, patience_s=4.0)), 0.0
    waiting: dict[int, Ticket] = {}
    sent: dict[int, Ticket] = {}
    ever: set[int] = set()
    for event, number, passed_s in ops:
        now_s += passed_s
        if event in {"high", "low"}:
            ticket = scheduler.arrive(HIGH if event == "high" else LOW, now_s=now_s)
            if ticket is not None:
                waiting[ticket.number] = ticket
        elif event == "start":
            for ticket in scheduler.dispatch(now_s=now_s):
                assert ticket.number not in ever
                ever.add(ticket.number)
                sent[ticket.number] = ticket
                del waiting[ticket.number]
        elif event == "done" and sent:
            scheduler.done(sent.pop(sorted(sent)[number % len(sent)]), prompt_tokens=100, output_tokens=number)
        elif event == "leave" and waiting:
            assert scheduler.withdraw(waiting.pop(sorted(waiting)[number % len(waiting)]))
        elif event == "swap":
            scheduler.swap(table(version=str(number), slots={"a": number % 5, "b": 2}))
        elif event == "give up":
            for ticket in scheduler.expired(now_s=now_s):
                del waiting[ticket.number]
        elif event == "watts":
            scheduler.limit(PowerAdmission(row_w=0.0, step_w=1.0, low_limit_w=float(number), high_limit_w=inf))
        assert sum(waiting_in(scheduler).values()) == len(waiting)
        assert routes_of(list(sent.values())) == {route: n for route, n in scheduler.in_flight.items() if n}


@given(st.integers(0, 150), st.sampled_from([0.05, 0.3, 0.9]))
def test_columns_follow_the_observed_response_lengths(answers: int, long_share: float) -> None:
    """Requests are assigned to buckets with the observed distribution of response lengths."""
    scheduler, long = Scheduler(table()), 0
    for number in range(answers):
        is_long = (number * long_share) % 1.0 + long_share >= 1.0
        (ticket,) = started(scheduler, HIGH, 1)
        long += is_long
        scheduler.done(ticket, prompt_tokens=100, output_tokens=400 if is_long else 10)
    more = [started(scheduler, HIGH, 1)[0].cell[1] for _ in range(200)]
    expected = (long + 50 * 0.4) / (answers + 50)
    assert abs(sum(more) / 200 - expected) < 0.1


def test_a_failed_request_is_retried_on_another_route() -> None:
    scheduler = Scheduler(table(slots={"a": 1, "b": 1}, weights={"a": 0.9, "b": 0.1}))
    (ticket,) = started(scheduler, HIGH, 1)
    again = scheduler.retry(ticket, now_s=0.0)
    assert again is not None
    assert (again.route, again.spilled, scheduler.in_flight) == ("b", True, {"a": 0, "b": 1})
    (other,) = started(scheduler, HIGH, 1)
    assert scheduler.retry(other, now_s=0.0) is None, "the other route is full"
    assert scheduler.in_flight == {"a": 1, "b": 1}


def test_a_failed_request_of_a_route_without_replicas_is_the_first_of_the_queue_again() -> None:
    scheduler = Scheduler(table(slots={"a": 1, "b": 1}))
    one, other = started(scheduler, HIGH, 2)
    scheduler.arrive(HIGH, now_s=1.0)
    failed, busy = (one, other) if one.route == "a" else (other, one)
    scheduler.set_replicas({"a": 0, "b": 1})
    again = scheduler.retry(failed, now_s=1.5)
    assert again is not None
    assert (again.route, scheduler.in_flight, scheduler.dispatch(now_s=2.0)) == (None, {"a": 0, "b": 1}, [])
    assert [ticket.since_s for ticket in scheduler.expired(now_s=31.2)] == [1.0], "it waited behind the younger one"
    scheduler.done(busy)
    (sent,) = scheduler.dispatch(now_s=31.3)
    assert (sent.number, sent.route, sent.since_s) == (failed.number, "b", 1.5)
    scheduler.set_replicas({"a": 0, "b": 0})
    assert scheduler.retry(sent, now_s=31.4) is None, "no route has a replica"


def test_slots_of_running_replicas_are_shared_among_routers() -> None:
    scheduler = Scheduler(table(slots={"a": 7, "b": 5}))
    assert scheduler.slots == {"a": 7, "b": 5}
    scheduler.set_replicas({"a": 3}, routers=2)
    assert scheduler.slots == {"a": 2, "b": 3}, "rounded up: no slot is lost"
    scheduler.swap(table(version="p2", slots={"a": 100, "b": 9}))
    assert scheduler.slots == {"a": 2, "b": 5}
    scheduler.set_replicas({"a": 0, "b": 0})
    assert not scheduler.has_replicas


def test_a_closed_route_gets_no_requests_until_it_is_opened() -> None:
    scheduler = Scheduler(table(weights={"a": 0.9, "b": 0.1}))
    scheduler.close(["a"])
    assert routes_of(started(scheduler, HIGH, 10)) == {"b": 10}
    scheduler.close([])
    assert "a" in routes_of(started(scheduler, HIGH, 10))
