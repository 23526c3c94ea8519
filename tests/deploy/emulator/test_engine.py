"""The emulated engine gives the results of the replay for any steps of time, and loses no request or token."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.emulator.engine import IDLE, Engine, Token, TooLongError, Work
from planner.performance.steps import StepCosts
from planner.replay import ReplayPool
from tests.planner.replay.engines import PLAIN, costs, run, small_engines, small_requests
from tests.planner.replay.reference_engine import Size

FOREVER_S = 1e6


def tokens_of(engine: Engine, sizes: list[Size]) -> list[Token]:
    """The tokens of these requests, each submitted at its arrival time."""
    tokens = []
    for at, (arrival_s, prompt, output) in enumerate(sizes):
        tokens += engine.advance(arrival_s)
        engine.submit(str(at), prompt_tokens=prompt, output_tokens=output)
    return tokens + engine.advance(FOREVER_S)


def first_and_last_s(tokens: list[Token], count: int) -> tuple[list[float], list[float]]:
    """The times of the first and the last token of each request."""
    first = {token.key: token.at_s for token in tokens if token.index == 0}
    last = {token.key: token.at_s for token in tokens if token.last}
    return [first[str(at)] for at in range(count)], [last[str(at)] for at in range(count)]


@st.composite
def loads(draw: st.DrawFn) -> tuple[StepCosts, list[Size]]:
    """An engine and requests that fit it, with a short delay after each arrival as in the replay."""
    engine = replace(draw(small_engines()), request_s=2.0**-20)
    return engine, draw(small_requests(cache_tokens=engine.cache_tokens))


@given(load=loads())
def test_token_times_match_the_replay(load: tuple[StepCosts, list[Size]]) -> None:
    engine, sizes = load
    expected = run(sizes, ReplayPool("A", 1, engine))
    found = Engine(costs=engine)
    first_s, last_s = first_and_last_s(tokens_of(found, sizes), len(sizes))
    np.testing.assert_allclose(first_s, expected.first_s, rtol=1e-12)
    np.testing.assert_allclose(last_s, expected.finish_s, rtol=1e-12)
    assert found.preemptions == expected.results[0].preemptions


@given(load=loads(), polls_s=st.lists(st.floats(0.0, 5.0), max_size=30))
def test_no_request_or_token_is_lost_for_any_polling_times(
    load: tuple[StepCosts, list[Size]], polls_s: list[float]
) -> None:
    engine, sizes = Engine(costs=load[0]), load[1]
    tokens = []
    for at, (arrival_s, prompt, output) in enumerate(sizes):
        for poll_s in sorted(each_s for each_s in polls_s if each_s < arrival_s):
            tokens += engine.advance(poll_s)
        tokens += engine.advance(arrival_s)
        engine.submit(str(at), prompt_tokens=prompt, output_tokens=output)
        assert engine.in_flight == at + 1 - sum(token.last for token in tokens)
        assert engine.cached_tokens <= engine.costs.cache_tokens
    tokens += engine.advance(FOREVER_S)
    assert Counter(token.key for token in tokens) == {str(at): size[2] for at, size in enumerate(sizes)}
    assert [token.at_s for token in tokens] == sorted(token.at_s for token in tokens)
    assert (engine.in_flight, engine.cached_tokens, engine.tokens_written) == (0, 0, len(tokens))


@given(load=loads(), gone=st.sets(st.integers(0, 13)), at_s=st.floats(0.0, 1.0))
def test_cancelled_requests_get_no_more_tokens_and_others_get_all(
    load: tuple[StepCosts, list[Size]], gone: set[int], at_s: float
) -> None:
    engine, sizes = Engine(costs=load[0]), load[1]
    for at, (_, prompt, output) in enumerate(sizes):
        engine.submit(str(at), prompt_tokens=prompt, output_tokens=output)
    before = engine.advance(at_s)
    for at in gone:
        engine.cancel(str(at))
    after = engine.advance(FOREVER_S)
    assert not {token.key for token in after} & {str(at) for at in gone}
    counted = Counter(token.key for token in before + after)
    assert all(counted[str(at)] == size[2] for at, size in enumerate(sizes) if at not in gone)
    assert (engine.in_flight, engine.cached_tokens) == (0, 0)


def test_a_request_larger_than_the_cache_is_refused_with_the_limit() -> None:
    engine = Engine(costs=costs(cache_tokens=100))
    engine.submit("fits", prompt_tokens=91, output_tokens=10)
    with pytest.raises(TooLongError, match="101 tokens; allowed: at most 100"):
        engine.submit("does not", prompt_tokens=92, output_tokens=10)
    assert engine.in_flight == 1


def test_an_iteration_in_progress_keeps_its_duration_when_costs_change() -> None:
    engine = Engine(costs=PLAIN)
    engine.submit("a", prompt_tokens=10, output_tokens=3)
    engine.advance(PLAIN.request_s)
    first_s = engine.next_s
    engine.retune(replace(PLAIN, fixed_s=PLAIN.fixed_s * 10), engine.watts)
    assert engine.next_s == first_s
    engine.advance(first_s)
    assert engine.next_s - first_s > PLAIN.fixed_s * 10


def test_energy_is_the_sum_of_power_times_duration_for_each_kind_of_work() -> None:
    watts = {True: 50.0, False: 400.0}
    engine = Engine(costs=PLAIN, watts=lambda work: watts[work == IDLE])
    engine.advance(10.0)
    assert engine.energy_j == pytest.approx(500.0)
    engine.submit("a", prompt_tokens=100, output_tokens=20)
    engine.advance(20.0)
    assert engine.energy_j == pytest.approx(50.0 * (20.0 - engine.busy_s) + 400.0 * engine.busy_s)
    assert engine.busy_s > 0
    assert engine.power_w == 50.0


def test_power_is_the_power_of_the_current_iteration() -> None:
    engine = Engine(costs=PLAIN, watts=lambda work: 100.0 * work.decoding + work.prompt_tokens)
    engine.submit("a", prompt_tokens=7, output_tokens=3)
    engine.advance(PLAIN.request_s)
    assert engine.power_w == engine.watts(Work(prompt_tokens=7)) == 7.0
    engine.advance(engine.next_s)
    assert engine.power_w == 100.0


@given(load=loads(), shares=st.lists(st.floats(0, 1), min_size=40, max_size=40))
def test_a_loaded_prompt_takes_its_space_in_the_cache_and_loses_no_token(
    load: tuple[StepCosts, list[Size]], shares: list[float]
) -> None:
    engine = Engine(costs=load[0])
    for at, (_, prompt, output) in enumerate(load[1]):
        loaded = int(shares[at % len(shares)] * prompt)
        engine.submit(str(at), prompt_tokens=prompt, output_tokens=output, loaded_tokens=loaded)
    tokens: Counter[str] = Counter()
    while engine.in_flight:
        for token in engine.advance(engine.next_s):
            assert token.started_s < token.at_s
            tokens[token.key] += 1
        assert engine.cached_tokens <= engine.costs.cache_tokens
    assert tokens == {str(at): output for at, (_, _, output) in enumerate(load[1])}


@given(prompt=st.integers(2, 20_000), loaded=st.integers(0, 30_000))
def test_a_loaded_prompt_is_read_faster(prompt: int, loaded: int) -> None:
    first_s = []
    for tokens in (0, loaded, prompt):
        engine = Engine(costs=replace(PLAIN, cache_tokens=50_000))
        engine.submit("a", prompt_tokens=prompt, output_tokens=1, loaded_tokens=tokens)
        first_s.append(engine.advance(FOREVER_S)[0].at_s)
    assert first_s[2] <= first_s[1] <= first_s[0]
