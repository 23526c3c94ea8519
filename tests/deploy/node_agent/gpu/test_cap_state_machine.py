"""The state machine of a cap under any behaviour of the driver and any requests."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from deploy.node_agent.gpu.cap_leases import CapLeases, GpuCapLease
from deploy.node_agent.gpu.cap_state_machine import MAX_TRIES, RETRY_S, CapState, CapStatus, Event, step, target
from deploy.node_agent.gpu.interface import Caps

FOUND_W = 700.0
PERIOD_S = 0.25
WATTS = st.one_of(st.none(), st.sampled_from([300.0, 400.0, 500.0, 600.0]))


@dataclass
class CapSimulation:
    """A driver that executes, ignores or refuses writes, with one cap."""

    cap_state: CapState = field(default_factory=lambda: CapState(tolerance=1.0, settle_s=1.0))
    enforced: float = FOUND_W
    now_s: float = 0.0
    writes: int = 0
    events: list[Event] = field(default_factory=list)

    def poll(self, wanted: float | None, *, driver: str = "does") -> None:
        done = step(self.cap_state, wanted=wanted, rest=FOUND_W, enforced=self.enforced, now_s=self.now_s)
        self.cap_state = done.cap_state
        if done.event:
            self.events.append(done.event)
        if done.write:
            self._write(target(wanted=wanted, rest=FOUND_W), driver)
        self.now_s += PERIOD_S

    def _write(self, value: float | None, driver: str) -> None:
        self.writes += 1
        if driver == "refuses":
            self.cap_state = self.cap_state.refused(now_s=self.now_s)
            return
        self.cap_state = self.cap_state.wrote(value, now_s=self.now_s)
        if driver == "does":
            self.enforced = FOUND_W if value is None else value


POLL = st.tuples(
    WATTS, st.sampled_from(["does", "ignores", "refuses"]), st.sampled_from(["", "reload", "other writer"])
)


@given(st.lists(POLL, max_size=40), WATTS)
def test_any_state_converges_to_the_wanted_cap_with_a_working_driver(
    before: list[tuple[float | None, str, str]], wanted: float | None
) -> None:
    simulation = CapSimulation()
    for requested, driver, event in before:
        if event == "reload":
            simulation.cap_state, simulation.enforced = simulation.cap_state.cleared(), FOUND_W
        elif event == "other writer":
            simulation.enforced = 650.0
        simulation.poll(requested, driver=driver)
    touched = simulation.cap_state.touched or wanted is not None
    for _ in range(int(2 * RETRY_S / PERIOD_S) + 4):
        simulation.poll(wanted)
    if not touched:
        assert simulation.cap_state.state in (CapStatus.FREE, CapStatus.REFUSED)
    elif wanted is None:
        assert (simulation.cap_state.state, simulation.cap_state.touched) == (CapStatus.FREE, False)
        assert simulation.enforced in {FOUND_W, 650.0}  # the lower limit of another writer stays
    else:
        assert simulation.cap_state.state is CapStatus.HELD
        assert simulation.enforced <= wanted + 1.0


@given(st.integers(min_value=100, max_value=4000))
def test_a_driver_that_ignores_writes_gets_a_bounded_number_of_them(polls: int) -> None:
    simulation = CapSimulation()
    for _ in range(polls):
        simulation.poll(400.0, driver="ignores")
    assert simulation.writes <= MAX_TRIES + 2 + simulation.now_s / RETRY_S


@given(st.integers(min_value=1, max_value=2000))
def test_a_driver_that_refuses_writes_gets_one_per_minute(polls: int) -> None:
    simulation = CapSimulation()
    for _ in range(polls):
        simulation.poll(400.0, driver="refuses")
    assert simulation.writes <= 1 + simulation.now_s / RETRY_S
    assert simulation.cap_state.state is CapStatus.REFUSED


def test_a_new_request_does_not_wait_for_the_old_one() -> None:
    simulation = CapSimulation()
    for _ in range(200):
        simulation.poll(400.0, driver="ignores")
    simulation.poll(500.0)
    assert simulation.enforced == 500.0
    simulation.poll(500.0)
    assert simulation.cap_state.state is CapStatus.HELD


def test_a_limit_that_was_not_raised_is_detected() -> None:
    simulation = CapSimulation()
    simulation.poll(400.0)
    simulation.poll(400.0)
    simulation.poll(600.0, driver="ignores")
    for _ in range(6):
        simulation.poll(600.0)
    assert simulation.enforced == 600.0
    assert simulation.events == [Event.IGNORED]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(100, 700), st.floats(0, 20)), min_size=1, max_size=12),
    st.floats(0, 40),
)
def test_the_requested_cap_is_at_most_that_of_any_lease(leases: list[tuple[str, float, float]], now_s: float) -> None:
    book, safe = CapLeases(), Caps(power_limit_w=350.0)
    last: dict[str, tuple[float, float]] = {}
    for holder, watts, until_s in leases:
        book.put(GpuCapLease(holder=holder, uuid="g", caps=Caps(power_limit_w=watts), until_s=until_s))
        last[holder] = (watts, until_s)
    expected = min(watts if now_s < until_s else min(watts, 350.0) for watts, until_s in last.values())
    assert book.requested("g", now_s=now_s, safe=safe) == Caps(power_limit_w=expected)
    for holder in last:
        assert book.release(holder)
    assert book.requested("g", now_s=now_s, safe=safe) == Caps()
