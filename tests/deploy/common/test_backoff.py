"""Failing targets are retried after exponentially growing waits; other targets are not delayed."""

from deploy.common.backoff import Backoff


def waits_s(backoff: Backoff, *, failures: int) -> list[float]:
    """The wait after each of several consecutive failures, in whole seconds."""
    waits, now_s = [], 0.0
    for _ in range(failures):
        backoff.failed("t", now_s=now_s)
        wait_s = next(wait for wait in range(1_000) if backoff.is_due("t", now_s=now_s + wait))
        waits.append(float(wait_s))
        now_s += wait_s
    return waits


def test_waits_double_up_to_the_maximum() -> None:
    assert waits_s(Backoff(first_s=5, max_s=60), failures=7) == [5, 10, 20, 40, 60, 60, 60]


def test_success_resets_the_wait() -> None:
    backoff = Backoff(first_s=5, max_s=60)
    waits_s(backoff, failures=4)
    backoff.succeeded("t")
    assert backoff.is_due("t", now_s=0.0)
    assert waits_s(backoff, failures=1) == [5]


def test_a_failure_does_not_delay_other_keys() -> None:
    backoff = Backoff(first_s=5, max_s=60)
    backoff.failed("t", now_s=0.0)
    assert backoff.is_due("u", now_s=0.0)


def test_the_wait_stays_bounded_after_thousands_of_failures() -> None:
    backoff = Backoff(first_s=5, max_s=60)
    for _ in range(5_000):
        backoff.failed("t", now_s=0.0)
    assert backoff.is_due("t", now_s=60.0)


def test_state_of_removed_keys_is_dropped() -> None:
    backoff = Backoff(first_s=5, max_s=60)
    backoff.failed("t", now_s=0.0)
    backoff.failed("u", now_s=0.0)
    backoff.forget_all_but(["u"])
    assert backoff.is_due("t", now_s=0.0)
    assert not backoff.is_due("u", now_s=0.0)
