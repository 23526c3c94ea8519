"""Tests that wait_for polls by the given clock until an observation matches."""

import pytest

from tests.testbed.waiting import wait_for


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


def test_the_first_matching_observation_is_returned_and_polling_stops() -> None:
    time = FakeTime()
    observations = iter([1, 2, 3, 4])

    found = wait_for(
        lambda: next(observations), lambda n: n == 3, what="three", interval_s=10, clock=time.clock, sleep=time.sleep
    )

    assert found == 3
    assert next(observations) == 4
    assert time.now_s == 1020.0


def test_a_condition_that_already_holds_is_returned_without_a_wait() -> None:
    time = FakeTime()
    assert wait_for(lambda: "up", what="it", clock=time.clock, sleep=time.sleep) == "up"
    assert time.now_s == 1000.0


def test_a_timeout_names_the_last_observation() -> None:
    time = FakeTime()
    with pytest.raises(TimeoutError, match=r"no third pod within 5 s; last observed: 1005.0"):
        wait_for(
            time.clock,
            lambda _: False,
            what="third pod",
            timeout_s=5,
            interval_s=1,
            clock=time.clock,
            sleep=time.sleep,
        )
    assert time.now_s == 1005.0
