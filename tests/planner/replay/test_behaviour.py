"""Properties of any replay: no request is lost, no request is too fast, and results match queueing theory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.performance.steps import StepCosts, step_s
from planner.replay import Balancing, ReplayPool, SplitPool, Stage
from planner.replay import kernel as compiled
from planner.replay.kernel_layout import fresh_replicas, fresh_requests, pack_costs
from tests.planner.replay.engines import PLAIN, costs, poisson, pool, run, small_engines, small_requests
from tests.planner.replay.reference_engine import Size


class TestConservation:
    @given(data=st.data(), engine=small_engines(exact=False), balancing=st.sampled_from(Balancing))
    def test_every_request_is_served_and_every_replica_ends_empty(
        self, data: st.DataObject, engine: StepCosts, balancing: Balancing
    ) -> None:
        times_s, inputs, outputs = (
            np.array(column)
            for column in zip(*data.draw(small_requests(cache_tokens=engine.cache_tokens)), strict=True)
        )
        requests = fresh_requests(
            arrival_s=times_s, input_tokens=inputs, output_tokens=outputs, delay_s=engine.request_s, carried=False
        )
        replicas = fresh_replicas(3)
        candidates = np.zeros((0, 1 if balancing is Balancing.ROUND_ROBIN else 3), dtype=np.int64)
        compiled.simulate(
            pack_costs(engine), replicas, requests, np.zeros((3, 2, engine.max_sequences), np.int64), candidates
        )
        for name in ("used", "cached", "in_flight", "decodes"):
            assert not replicas[name].any(), name
        assert (replicas["head"] == -1).all()
        assert (replicas["peak_tokens"] <= engine.cache_tokens).all()
        assert np.isfinite(requests["finish_s"]).all()
        decoded = (outputs - 1).sum()
        assert replicas["iterations"].sum() >= decoded / engine.max_sequences

    @given(data=st.data(), engine=small_engines(exact=False))
    def test_no_request_is_faster_than_alone(self, data: st.DataObject, engine: StepCosts) -> None:
        """Splitting a prompt, or reading it together with others, never takes less time than reading it in one piece.

        Routed experts are an exception: while others decode, the model charges the reading of experts only to decoding.
        """
        sizes: list[Size] = data.draw(small_requests(cache_tokens=engine.cache_tokens))
        found = run(sizes, ReplayPool("A", 2, engine))
        for (arrival_s, inputs, outputs), first_s, finish_s in zip(sizes, found.first_s, found.finish_s, strict=True):
            pairs = inputs * (inputs - 1) / 2
            least = replace(engine, experts_s=0.0)
            read_s = step_s(least, decoding=0.0, cached_tokens=0.0, prompt_tokens=float(inputs), pairs=pairs)
            assert first_s - arrival_s >= (engine.request_s + read_s) * (1 - 1e-12)
            decode_s = step_s(engine, decoding=1.0, cached_tokens=float(inputs))
            assert finish_s - first_s >= (outputs - 1) * decode_s * (1 - 1e-9)

    @given(data=st.data(), engine=small_engines(exact=False))
    def test_doubling_every_cost_doubles_every_time(self, data: st.DataObject, engine: StepCosts) -> None:
        sizes: list[Size] = data.draw(small_requests(cache_tokens=engine.cache_tokens))
        slow = replace(
            engine,
            **{name: 2 * getattr(engine, name) for name in StepCosts.__slots__ if name.endswith("_s")},
        )
        found = run(sizes, ReplayPool("A", 2, engine))
        slower = run([(2 * time_s, inputs, outputs) for time_s, inputs, outputs in sizes], ReplayPool("A", 2, slow))
        assert list(slower.finish_s) == list(2 * found.finish_s)

    def test_a_request_that_exceeds_every_cache_is_rejected(self) -> None:
        found = run([(0.0, 90, 11), (0.0, 90, 12)], pool(cache_tokens=100))
        assert np.isnan(found.finish_s).tolist() == [False, True]
        assert found.results[0].too_long == 1
        assert found.results[0].requests == 1

    def test_a_pool_without_requests_is_idle(self) -> None:
        (result,) = run([], pool(2)).results
        assert (result.requests, result.busy, result.iterations) == (0, 0.0, 0)


class TestQueueingTheory:
    """Engines simple enough for exact results of queueing theory."""

    ONE_BY_ONE = costs(request_s=0.0, max_sequences=1, chunk_tokens=500)  # each iteration reads one whole prompt
    SERVICE_S = step_s(ONE_BY_ONE, decoding=0.0, cached_tokens=0.0, prompt_tokens=500.0, pairs=500 * 499 / 2)

    def sizes(self, busy: float, *, requests: int = 40_000) -> list[Size]:
        stream = poisson(rate_rps=busy / self.SERVICE_S, requests=requests, output_tokens=1)
        return [(float(arrival_s), 500, 1) for arrival_s in stream.arrival_s]

    @pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
    def test_prompts_wait_as_in_an_m_d_1_queue(self, busy: float) -> None:
        sizes = self.sizes(busy)
        found = run(sizes, ReplayPool("A", 1, self.ONE_BY_ONE), duration_s=sizes[-1][0])
        waited_s = np.mean(found.finish_s - np.array([size[0] for size in sizes])) - self.SERVICE_S
        assert waited_s == pytest.approx(self.SERVICE_S * busy / (2 * (1 - busy)), rel=0.08)
        assert found.results[0].busy == pytest.approx(busy, rel=0.02)

    def test_the_wait_of_every_request_follows_the_lindley_recursion(self) -> None:
        sizes = self.sizes(0.9, requests=3000)
        found = run(sizes, ReplayPool("A", 1, self.ONE_BY_ONE))
        free_s = 0.0
        for (arrival_s, *_), finish_s in zip(sizes, found.finish_s, strict=True):
            free_s = max(free_s, arrival_s) + self.SERVICE_S
            assert finish_s == pytest.approx(free_s, rel=1e-9)

    @given(seed=st.integers(0, 1000), replicas=st.integers(1, 3), busy=st.floats(0.5, 3.0))
    def test_doubling_round_robin_replicas_delays_no_request(self, seed: int, replicas: int, busy: float) -> None:
        """Each replica then serves every second request of one replica before: by Lindley no request waits longer."""
        stream = poisson(rate_rps=busy / self.SERVICE_S, requests=200, output_tokens=1, seed=seed)
        sizes = [(float(arrival_s), 500, 1) for arrival_s in stream.arrival_s]
        few, many = (
            run(sizes, ReplayPool("A", count, self.ONE_BY_ONE), balancing=Balancing.ROUND_ROBIN).finish_s
            for count in (replicas, 2 * replicas)
        )
        assert (many <= few * (1 + 1e-12)).all()

    def test_round_robin_and_least_requests_match_m_d_c_with_equal_work(self) -> None:
        """With equal service times requests leave in order of arrival: both are M/D/c (Kiefer and Wolfowitz, 1955)."""
        sizes = self.sizes(4 * 0.8, requests=5000)
        free_s = [0.0] * 4
        expected = []
        for arrival_s, *_ in sizes:
            free_s.sort()
            free_s[0] = max(free_s[0], arrival_s) + self.SERVICE_S
            expected.append(free_s[0])
        for balancing in (Balancing.MIN_REQUESTS, Balancing.ROUND_ROBIN):
            found = run(sizes, ReplayPool("A", 4, self.ONE_BY_ONE), balancing=balancing)
            assert found.finish_s == pytest.approx(expected, rel=1e-9)

    def test_with_unequal_work_more_load_information_is_better(self) -> None:
        rng = np.random.default_rng(2)
        inputs = rng.choice([50, 500], size=20_000, p=[0.8, 0.2])
        arrivals_s = np.cumsum(rng.exponential(self.SERVICE_S / 8, size=20_000))
        sizes = [(float(at_s), int(tokens), 1) for at_s, tokens in zip(arrivals_s, inputs, strict=True)]
        all_of_them, two, none = (
            float(np.mean(run(sizes, ReplayPool("A", 5, self.ONE_BY_ONE), balancing=way).finish_s - arrivals_s))
            for way in (Balancing.MIN_REQUESTS, Balancing.POWER_OF_TWO, Balancing.ROUND_ROBIN)
        )
        assert all_of_them < two < none

    def test_equal_simultaneous_requests_are_decoded_in_lockstep(self) -> None:
        """A batch that begins and ends together takes one `step_s` of the whole batch per token."""
        found = run([(0.0, 10, 50)] * 8, pool(request_s=0.0))
        expected_s = sum(step_s(PLAIN, decoding=8.0, cached_tokens=8.0 * (10 + token)) for token in range(49))
        assert found.finish_s - found.first_s == pytest.approx([expected_s] * 8, rel=1e-12)


class TestDisaggregation:
    def split(self, **changes: float) -> SplitPool:
        settings_ = {"transfer_token_s": 1e-5, "transfer_fixed_s": 0.01, **changes}
        return SplitPool("H100+A100", 2, PLAIN, 1, costs(fixed_s=0.004), **settings_)

    def test_the_first_token_follows_prompt_transfer_and_one_iteration(self) -> None:
        found = run([(0.0, 1000, 3)], self.split())
        pairs = 1000 * 999 / 2
        read_s = step_s(PLAIN, decoding=0.0, cached_tokens=0.0, prompt_tokens=1000.0, pairs=pairs)
        decode = costs(fixed_s=0.004)
        one_s, two_s, three_s = (
            step_s(decode, decoding=1.0, cached_tokens=tokens) for tokens in (999.0, 1000.0, 1001.0)
        )
        first_s = PLAIN.request_s + read_s + 0.01 + 1000 * 1e-5 + one_s
        assert found.first_s[0] == pytest.approx(first_s, rel=1e-12)
        assert found.finish_s[0] == pytest.approx(first_s + two_s + three_s, rel=1e-12)

    def test_a_slower_transfer_delays_the_first_token_by_the_difference(self) -> None:
        near, far = (run([(0.0, 1000, 3)], self.split(transfer_token_s=each_s)).first_s[0] for each_s in (0.0, 1e-3))
        assert far - near == pytest.approx(1.0)

    def test_decoding_does_not_wait_for_other_prompts(self) -> None:
        """A long prompt delays the tokens of a combined replica, and not those of a disaggregated pool."""
        sizes = [(0.0, 100, 400), *((0.2 + 0.01 * number, 2000, 1) for number in range(40))]
        together, apart = (run(sizes, one).finish_s[0] for one in (pool(), self.split()))
        assert apart < 0.8 * together

    def test_both_stages_report_and_an_oversized_request_is_counted_once(self) -> None:
        found = run([(0.0, 100, 5), (0.0, 400_000, 5)], self.split())
        assert [(result.stage, result.requests, result.too_long) for result in found.results] == [
            (Stage.PREFILL, 1, 0),
            (Stage.DECODE, 1, 1),
        ]
        assert np.isnan(found.finish_s).tolist() == [False, True]
