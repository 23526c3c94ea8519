"""Failing targets are left alone for longer and longer, others are not."""

from deploy.common.backoff import Backoff


def waits_s(backoff: Backoff, *, failures: int) -> list[float]:
    """How long each of some failures in a row keeps the target away, to the second."""
    waits, now_s = [], 0.0
    for _ in range(failures):
        backoff.failed("t", now_s=now_s)
        wait_s = next(wait for wait in range(1_000) if backoff.is_due("t", now_s=now_s + wait))
        waits.append(float(wait_s))
        now_s += wait_s
    return waits


def test_waits_double_up_to_the_bound() -> None:
    assert waits_s(Backoff(first_s=5, most_s=60), failures=7) == [5, 10, 20, 40, 60, 60, 60]


def test_success_starts_over() -> None:
    backoff = Backoff(first_s=5, most_s=60)
    waits_s(backoff, failures=4)
    backoff.succeeded("t")
    assert backoff.is_due("t", now_s=0.0)
    assert waits_s(backoff, failures=1) == [5]


def test_another_key_is_due() -> None:
    backoff = Backoff(first_s=5, most_s=60)
    backoff.failed("t", now_s=0.0)
    assert backoff.is_due("u", now_s=0.0)


def test_a_target_may_fail_for_years() -> None:
    backoff = Backoff(first_s=5, most_s=60)
    for _ in range(5_000):
        backoff.failed("t", now_s=0.0)
    assert backoff.is_due("t", now_s=60.0)


def test_keys_that_are_gone_are_forgotten() -> None:
    backoff = Backoff(first_s=5, most_s=60)
    backoff.failed("t", now_s=0.0)
    backoff.failed("u", now_s=0.0)
    backoff.forget_all_but(["u"])
    assert backoff.is_due("t", now_s=0.0)
    assert not backoff.is_due("u", now_s=0.0)
