"""Copies of recorded traces: every request, every burst, at the requested load."""

import numpy as np
import pytest

from fleet.documents import RuleError
from fleet.traces import Trace
from power.controls import Priority
from power.workload import Recorded, batching
from power.workload.load_profile import Curve
from power.workload.trace_replay import content_s, traced_work

FLAT = Curve(3600.0, np.ones(25))


def bursty(seed: int = 0, requests: int = 600) -> Trace:
    """Bursts of twenty in a second, a minute apart."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(np.concatenate([60 * at + rng.random(20) for at in range(requests // 20)]))
    return Trace(arrival_s - arrival_s[0], rng.integers(100, 4000, requests), rng.integers(1, 60, requests))


def test_the_load_is_the_requested_utilization() -> None:
    work = traced_work([Recorded("code", bursty())], servers=20, days=1, seed=1, utilization=0.5, shape=FLAT)
    model = batching()
    for at, pool in enumerate(work.pools):
        chosen = work.pool == at
        trace = Trace(work.arrival_s[chosen], work.prompt_tokens[chosen], work.output_tokens[chosen])
        busy = float(content_s(trace, model).sum()) / (pool.servers * work.duration_s)
        assert busy == pytest.approx(0.5, rel=0.02)


def test_a_full_batch_takes_the_sum_of_its_contents() -> None:
    """32 responses of equal length in one batch take as long as the sum of their contents."""
    model = batching()
    trace = Trace(np.arange(32.0), np.full(32, 1000), np.full(32, 50))
    together_s = 32 * model.prompt_time_s(1000) + 50 * model.token_time_s(32)
    assert float(content_s(trace, model).sum()) == pytest.approx(together_s)


def test_traces_share_the_servers_equally_with_half_in_each_priority() -> None:
    traces = [Recorded("code", bursty(1)), Recorded("conv", bursty(2))]
    work = traced_work(traces, servers=52, days=1)
    assert [pool.name for pool in work.pools] == ["code-low", "code-high", "conv-low", "conv-high"]
    assert [pool.servers for pool in work.pools] == [13, 13, 13, 13]
    assert [pool.priority for pool in work.pools] == [Priority.LOW, Priority.HIGH] * 2


def test_requests_keep_their_sizes_and_their_order() -> None:
    trace = bursty()
    work = traced_work([Recorded("code", trace)], servers=2, days=1, seed=3, utilization=0.01, shape=FLAT)
    chosen = work.pool == 0  # one copy at so little load: the trace in a loop
    sizes = list(zip(work.prompt_tokens[chosen].tolist(), work.output_tokens[chosen].tolist(), strict=True))
    recorded = list(zip(trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    start = (
        next(at for at in range(len(trace)) if recorded[at:] + recorded[:at] == (sizes * 2)[: len(trace)] * 1)
        if (len(sizes) >= len(trace))
        else 0
    )
    assert sizes == [recorded[(start + at) % len(trace)] for at in range(len(sizes))]


def test_bursts_are_preserved() -> None:
    """A Poisson process of this rate rarely has ten requests in a second; the trace has such a second every minute."""
    work = traced_work([Recorded("code", bursty())], servers=24, days=0.25, seed=4, utilization=0.2, shape=FLAT)
    of_one_pool = work.arrival_s[work.pool == 0]
    counts = np.bincount(of_one_pool.astype(np.int64))
    assert counts.max() >= 15
    assert counts.var() > 5 * counts.mean()


def test_the_trace_is_replayed_slower_off_the_peak() -> None:
    half = Curve(3600.0, np.array([1.0] * 12 + [0.5] * 12 + [0.5]))
    work = traced_work([Recorded("code", bursty())], servers=40, days=1, seed=5, shape=half)
    morning = np.count_nonzero(work.arrival_s < 11 * 3600) / 11
    evening = np.count_nonzero(work.arrival_s >= 12 * 3600) / 12
    assert evening / morning == pytest.approx(0.5, rel=0.05)


def test_equal_seeds_give_equal_work_and_other_seeds_shift_the_copies() -> None:
    one, again, other = (traced_work([Recorded("code", bursty())], servers=9, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.arrival_s, again.arrival_s)
    assert not np.array_equal(one.arrival_s[:50], other.arrival_s[:50])


def test_prompts_of_no_tokens_are_read_as_one() -> None:
    trace = Trace(np.arange(10.0), np.zeros(10, dtype=np.int64), np.ones(10, dtype=np.int64))
    assert traced_work([Recorded("x", trace)], servers=2).prompt_tokens.min() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servers": 1}, "servers.*at least 2"),
        ({"utilization": 0.0}, "utilization"),
        ({"traces": []}, "traces.*at least one"),
        ({"days": 0.0}, "days"),
        ({"servers": 100_000, "days": 14.0}, "requests, expected at most"),
        ({"traces": [Recorded("x", Trace(np.zeros(3), np.ones(3, dtype=int), np.ones(3, dtype=int)))]}, "no rate"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"traces": [Recorded("code", bursty())], "servers": 4, "days": 1.0, "utilization": 0.3}
    with pytest.raises(RuleError, match=message):
        traced_work(**{**given, **change})  # type: ignore[arg-type]
