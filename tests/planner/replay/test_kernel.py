"""The compiled kernel matches the reference simulator, request by request and to the last bit."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from planner.performance.steps import StepCosts, step_s
from planner.replay import Balancing, ReplayPool, Stage
from planner.replay import kernel as compiled
from planner.replay.kernel_layout import COSTS, fresh_replicas, fresh_requests, pack_costs
from tests.planner.replay import reference_engine
from tests.planner.replay.engines import PLAIN, TICK_S, costs, pool, run, small_engines, small_requests

COUPLED = st.sampled_from((Balancing.ROUND_ROBIN, Balancing.MIN_REQUESTS))


class TestAgainstTheReferenceSimulator:
    @given(data=st.data(), engine=small_engines(), replicas=st.integers(1, 3), balancing=COUPLED)
    def test_first_and_last_tokens_match_the_reference_simulator(
        self, data: st.DataObject, engine: StepCosts, replicas: int, balancing: Balancing
    ) -> None:
        sizes = data.draw(small_requests(cache_tokens=engine.cache_tokens))
        expected = reference_engine.simulate(sizes, engine, replicas=replicas, balancing=balancing)
        found = run(sizes, ReplayPool("A", replicas, engine), balancing=balancing)
        (result,) = found.results
        assert list(found.first_s) == expected.first_s
        assert list(found.finish_s) == expected.finish_s
        preemptions = sum(one.preemptions for one in expected.engines)
        event(f"preemptions: {min(preemptions, 3)}")
        assert result.preemptions == preemptions
        assert result.iterations == sum(one.iterations for one in expected.engines)
        assert result.peak_cache == max(one.peak_tokens for one in expected.engines) / engine.cache_tokens

    @given(data=st.data(), engine=small_engines(), replicas=st.integers(1, 3), balancing=COUPLED)
    def test_requests_with_a_transferred_cache_match_the_reference_simulator(
        self, data: st.DataObject, engine: StepCosts, replicas: int, balancing: Balancing
    ) -> None:
        sizes = data.draw(small_requests(cache_tokens=engine.cache_tokens))
        expected = reference_engine.simulate(sizes, engine, replicas=replicas, balancing=balancing, carried=True)
        times_s, inputs, outputs = (np.array(column) for column in zip(*sizes, strict=True))
        requests = fresh_requests(
            arrival_s=times_s, input_tokens=inputs, output_tokens=outputs, delay_s=0.0, carried=True
        )
        slots = np.zeros((replicas, 2, engine.max_sequences), dtype=np.int64)
        candidates = np.zeros((0, replicas if balancing is Balancing.MIN_REQUESTS else 1), dtype=np.int64)
        compiled.simulate(pack_costs(engine), fresh_replicas(replicas), requests, slots, candidates)
        assert list(requests["first_s"]) == expected.first_s
        assert list(requests["finish_s"]) == expected.finish_s

    @given(data=st.data(), engine=small_engines(exact=False))
    def test_with_rounded_times_both_simulators_agree_closely(self, data: st.DataObject, engine: StepCosts) -> None:
        """One replica and all requests at once, so that rounding cannot change an order."""
        sizes = [(0.0, *size[1:]) for size in data.draw(small_requests(cache_tokens=engine.cache_tokens))]
        expected = reference_engine.simulate(sizes, engine, replicas=1, balancing=Balancing.ROUND_ROBIN)
        found = run(sizes, ReplayPool("A", 1, engine))
        np.testing.assert_allclose(found.first_s, expected.first_s, rtol=1e-12)
        np.testing.assert_allclose(found.finish_s, expected.finish_s, rtol=1e-12)

    @pytest.mark.parametrize("balancing", [Balancing.ROUND_ROBIN, Balancing.MIN_REQUESTS])
    def test_minutes_of_realistic_load_match_the_reference_simulator(self, balancing: Balancing) -> None:
        """Many iterations without an event, prompts in several chunks, and an occasionally full cache."""
        rng = np.random.default_rng(4)
        count = 300
        times_s = np.cumsum(rng.exponential(0.15, size=count))
        inputs, outputs = rng.lognormal(6.5, 1.0, size=count), rng.lognormal(4.5, 0.7, size=count)
        sizes = [
            (float(at_s), 1 + int(min(read, 9000)), 1 + int(min(written, 900)))
            for at_s, read, written in zip(times_s, inputs, outputs, strict=True)
        ]
        engine = costs(cache_tokens=12_000, fixed_s=0.01)
        expected = reference_engine.simulate(sizes, engine, replicas=2, balancing=balancing)
        found = run(sizes, ReplayPool("A", 2, engine), balancing=balancing)
        np.testing.assert_allclose(found.first_s, expected.first_s, rtol=1e-9)
        np.testing.assert_allclose(found.finish_s, expected.finish_s, rtol=1e-9)
        assert found.results[0].preemptions == sum(one.preemptions for one in expected.engines) > 0

    def test_preemption_on_a_full_cache_matches_the_reference_simulator(self) -> None:
        """Two sequences exceed the cache together: the later one is preempted and its prompt is read again at once."""
        engine = replace(PLAIN, cache_tokens=20, max_sequences=4, chunk_tokens=16, request_s=0.0)
        sizes = [(0.0, 5, 10), (0.0, 5, 10)]
        expected = reference_engine.simulate(sizes, engine, replicas=1, balancing=Balancing.ROUND_ROBIN)
        (result,) = run(sizes, ReplayPool("A", 1, engine)).results
        assert result.preemptions == expected.engines[0].preemptions == 1

    def test_load_balancing_counts_requests_that_finish_early_after_a_preemption(self) -> None:
        """A preemption shortens the batch and its iterations, so requests finish earlier than predicted."""
        engine = replace(
            PLAIN,
            fixed_s=9201 * TICK_S,
            weights_s=6498 * TICK_S,
            token_s=917 * TICK_S,
            cached_token_s=1364 * TICK_S,
            traffic_s=43 * TICK_S,
            pair_s=3 * TICK_S,
            sequence_s=0.0,
            request_s=47_501 * TICK_S,
            cache_tokens=27,
            max_sequences=2,
            chunk_tokens=24,
        )
        inputs, outputs = (1, 21, 6, 4, 11, 20, 5, 4), (24, 7, 14, 24, 17, 8, 23, 13)
        ticks_of_64 = (2, 13, 25, 27, 35, 46, 55, 59)
        sizes = [(at / 64, read, written) for at, read, written in zip(ticks_of_64, inputs, outputs, strict=True)]
        expected = reference_engine.simulate(sizes, engine, replicas=3, balancing=Balancing.MIN_REQUESTS)
        assert sum(one.preemptions for one in expected.engines) > 0
        assert list(run(sizes, ReplayPool("A", 3, engine)).finish_s) == expected.finish_s


class TestCosts:
    def test_the_cost_record_has_every_field_of_step_costs(self) -> None:
        packed = pack_costs(PLAIN)[0]
        assert {name: packed[name] for name in COSTS.names or () if not name.startswith("arithmetic_")} == {
            field.name: getattr(PLAIN, field.name) for field in fields(StepCosts)
        }

    @given(
        engine=small_engines(exact=False),
        inputs=st.lists(st.integers(1, 15), min_size=1, max_size=6),
    )
    def test_a_prompt_iteration_takes_step_s(self, engine: StepCosts, inputs: list[int]) -> None:
        engine = replace(engine, cache_tokens=1000, max_sequences=10, chunk_tokens=100, request_s=0.0)
        found = run([(0.0, tokens, 1) for tokens in inputs], ReplayPool("A", 1, engine))
        pairs = sum(tokens * (tokens - 1) / 2 for tokens in inputs)
        expected_s = step_s(engine, decoding=0.0, cached_tokens=0.0, prompt_tokens=float(sum(inputs)), pairs=pairs)
        assert found.finish_s == pytest.approx([expected_s] * len(inputs), rel=1e-14)

    @given(engine=small_engines(exact=False), cached=st.integers(1, 10**6), decoding=st.integers(1, 300))
    def test_an_iteration_time_is_linear_in_the_cached_tokens(
        self, engine: StepCosts, cached: int, decoding: int
    ) -> None:
        """The kernel skips iterations only because this property holds."""
        empty_s = step_s(engine, decoding=float(decoding), cached_tokens=0.0)
        full_s = step_s(engine, decoding=float(decoding), cached_tokens=float(cached))
        assert full_s == pytest.approx(empty_s + cached * engine.cached_token_s, rel=1e-12)

    def test_a_decoded_token_reads_the_tokens_cached_before_it(self) -> None:
        found = run([(0.0, 100, 3)], pool(request_s=0.0))
        second_s, third_s = (step_s(PLAIN, decoding=1.0, cached_tokens=tokens) for tokens in (100.0, 101.0))
        assert found.finish_s[0] - found.first_s[0] == pytest.approx(second_s + third_s, rel=1e-12)


class TestLoadBalancing:
    def test_power_of_two_keeps_loads_close_to_round_robin(self) -> None:
        """With replicas that never finish, loads can only grow; two choices keep them close (Mitzenmacher 2001)."""
        sizes = [(number * 1e-6, 10, 1000) for number in range(3000)]
        engine = costs(max_sequences=400)
        loads = {}
        for balancing in Balancing:
            (result,) = run(sizes, ReplayPool("A", 10, engine), balancing=balancing).results
            loads[balancing] = result.peak_cache
        assert loads[Balancing.MIN_REQUESTS] == pytest.approx(loads[Balancing.ROUND_ROBIN])
        assert loads[Balancing.POWER_OF_TWO] < 1.05 * loads[Balancing.ROUND_ROBIN]

    def test_draws_are_determined_by_the_seed(self) -> None:
        sizes = [(number * 0.001, 100 + 7 * (number % 13), 20) for number in range(200)]
        one, same, other = (
            run(sizes, pool(5), balancing=Balancing.POWER_OF_TWO, seed=seed).finish_s for seed in (1, 1, 2)
        )
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_an_idle_replica_receives_the_request(self) -> None:
        """Least requests uses the second replica only while the first has a request."""
        sizes = [(0.0, 100, 500), (0.1, 100, 1), (0.2, 100, 1)]
        alone_s = run(sizes[1:2], pool(2)).finish_s[0] - 0.1
        found = run(sizes, pool(2))
        assert found.finish_s[1] - 0.1 == pytest.approx(alone_s)
        assert found.finish_s[2] - 0.2 == pytest.approx(alone_s)


def test_a_result_names_its_stage_and_option() -> None:
    (result,) = run([(0.0, 10, 2)], pool(2)).results
    assert (result.stage, result.option, result.replicas, result.requests) == (Stage.BOTH, "H100", 2, 1)
