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
class World:
    """A driver that executes, ignores or refuses writes, with one cap."""

    cap_state: CapState = field(default_factory=lambda: CapState(tolerance=1.0, settle_s=1.0))
    enforced: float = FOUND_W
    now_s: float = 0.0
    writes: int = 0
    events: list[Event] = field(default_factory=list)

    def look(self, wanted: float | None, *, driver: str = "does") -> None:
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


LOOK = st.tuples(WATTS, st.sampled_from(["does", "ignores", "refuses"]), st.sampled_from(["", "reload", "meddle"]))


@given(st.lists(LOOK, max_size=40), WATTS)
def test_an_obedient_driver_is_brought_to_what_is_wanted_from_wherever_it_was(
    before: list[tuple[float | None, str, str]], wanted: float | None
) -> None:
    world = World()
    for want, driver, what in before:
        if what == "reload":
            world.cap_state, world.enforced = world.cap_state.forgotten(), FOUND_W
        elif what == "meddle":
            world.enforced = 650.0
        world.look(want, driver=driver)
    touched = world.cap_state.touched or wanted is not None
    for _ in range(int(2 * RETRY_S / PERIOD_S) + 4):
        world.look(wanted)
    if not touched:
        assert world.cap_state.state in (CapStatus.FREE, CapStatus.REFUSED)
    elif wanted is None:
        assert (world.cap_state.state, world.cap_state.touched) == (CapStatus.FREE, False)
        assert world.enforced in {FOUND_W, 650.0}  # another's lower limit stays
    else:
        assert world.cap_state.state is CapStatus.HELD
        assert world.enforced <= wanted + 1.0


@given(st.integers(min_value=100, max_value=4000))
def test_a_driver_that_ignores_writes_gets_a_bounded_number_of_them(looks: int) -> None:
    world = World()
    for _ in range(looks):
        world.look(400.0, driver="ignores")
    assert world.writes <= MAX_TRIES + 2 + world.now_s / RETRY_S


@given(st.integers(min_value=1, max_value=2000))
def test_one_that_refuses_is_asked_once_a_minute(looks: int) -> None:
    world = World()
    for _ in range(looks):
        world.look(400.0, driver="refuses")
    assert world.writes <= 1 + world.now_s / RETRY_S
    assert world.cap_state.state is CapStatus.REFUSED


def test_a_new_request_does_not_wait_for_the_old_one() -> None:
    world = World()
    for _ in range(200):
        world.look(400.0, driver="ignores")
    world.look(500.0)
    assert world.enforced == 500.0
    world.look(500.0)
    assert world.cap_state.state is CapStatus.HELD


def test_a_limit_that_was_not_raised_is_seen() -> None:
    world = World()
    world.look(400.0)
    world.look(400.0)
    world.look(600.0, driver="ignores")
    for _ in range(6):
        world.look(600.0)
    assert world.enforced == 600.0
    assert world.events == [Event.IGNORED]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(100, 700), st.floats(0, 20)), min_size=1, max_size=12),
    st.floats(0, 40),
)
def test_the_requested_cap_is_at_most_that_of_any_lease(orders: list[tuple[str, float, float]], now_s: float) -> None:
    book, safe = CapLeases(), Caps(power_limit_w=350.0)
    last: dict[str, tuple[float, float]] = {}
    for holder, watts, until_s in orders:
        book.put(GpuCapLease(holder=holder, uuid="g", caps=Caps(power_limit_w=watts), until_s=until_s))
        last[holder] = (watts, until_s)
    expected = min(watts if now_s < until_s else min(watts, 350.0) for watts, until_s in last.values())
    assert book.requested("g", now_s=now_s, safe=safe) == Caps(power_limit_w=expected)
    for holder in last:
        assert book.release(holder)
    assert book.requested("g", now_s=now_s, safe=safe) == Caps()
