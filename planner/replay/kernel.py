"""The compiled simulator of one pool of equal replicas; docs/explanation/planner/replay.md has its state machines.

Scheduling follows vLLM V1 (`vllm/v1/core/sched/scheduler.py`, read in November 2026): decoding sequences first, then
the partly read prompt, then the waiting requests, first come first served, within one budget of tokens per iteration.
A sequence without space in the cache preempts the one admitted last, which restarts at the head of the queue.

Between two events all iterations of a replica are alike except for the cache, which grows by one token per sequence.
The time of any number of them is an arithmetic series, so a replica jumps from event to event (`_leap`) and simulates
single iterations only where it reads prompts or the cache is full (`_iterate`).

Importing this module compiles it, or loads the result of an earlier process.  Only `planner.replay.pool` imports it,
late.
"""

from collections.abc import Callable
from math import ceil, inf, sqrt
from types import FunctionType
from typing import TypeVar, cast

import numpy as np
from numba import from_dtype, int64, void

from fleet.numba_cache import jit_entry, jit_inner
from planner.performance.steps import step_s
from planner.replay.kernel_layout import COSTS, NONE_INDEX, REPLICA, REQUEST, Record, Records, Slots

Function = TypeVar("Function", bound=Callable[..., object])

MANY = 2**62
NEVER = -inf
SIGNATURE = void(
    *(from_dtype(dtype)[::1] for dtype in (COSTS, REPLICA, REQUEST)), int64[:, :, ::1], int64[:, ::1]
)  # of `run`


def _positional(function: Function) -> Function:
    """The same code with its keyword-only arguments made positional, because numba 0.68 cannot call the others."""
    code = function.__code__
    arguments = code.co_argcount + code.co_kwonlyargcount
    made = FunctionType(code.replace(co_argcount=arguments, co_kwonlyargcount=0), function.__globals__)
    return cast("Function", made)


_step_s: Callable[..., float] = jit_inner(_positional(step_s))


@jit_inner
def _leap_s(first_s: float, growth_s: float, iterations: int) -> float:
    """Time of iterations of which the first takes `first_s` and each next one `growth_s` more."""
    return iterations * first_s + growth_s * (iterations * (iterations - 1) // 2)


@jit_inner
def _iterations_to_pass(first_s: float, growth_s: float, span_s: float) -> int:
    """The fewest iterations, at least one, that together take `span_s` or longer."""
    slope_s = first_s - growth_s / 2
    count = max(1, ceil(2 * span_s / (slope_s + sqrt(slope_s * slope_s + 2 * growth_s * span_s))))
    while _leap_s(first_s, growth_s, count) < span_s:
        count += 1
    while count > 1 and _leap_s(first_s, growth_s, count - 1) >= span_s:
        count -= 1
    return count


@jit_inner
def _enqueue(state: Record, requests: Records, i: int) -> None:
    if state.head == NONE_INDEX:
        state.head = i
    else:
        requests[state.tail].behind = i
    state.tail = i
    state.in_flight += 1
    state.quiet_until_s = NEVER


@jit_inner
def _requeue(state: Record, requests: Records, i: int, held: int) -> None:
    """Free a request's cache and put it at the head of the queue."""
    state.used -= held
    state.preemptions += 1
    requests[i].carried = 0
    requests[i].behind = state.head
    if state.head == NONE_INDEX:
        state.tail = i
    state.head = i


@jit_inner
def _free_cache(costs: Record, state: Record, requests: Records, slots: Slots) -> None:
    """Preempt the request admitted last until every remaining decoding sequence has space for one more token."""
    while costs.cache_tokens - state.used < state.decodes:
        if state.partial != NONE_INDEX:
            _requeue(state, requests, state.partial, state.partial_done)
            state.partial = NONE_INDEX
        else:
            state.decodes -= 1
            i, ends_at = slots[0, state.decodes], slots[1, state.decodes]
            requests[i].generated = requests[i].output_tokens - (ends_at - state.steps)
            held = requests[i].input_tokens + requests[i].generated - 1
            state.cached -= held
            _requeue(state, requests, i, held)


@jit_inner
def _add_chunk(state: Record, slots: Slots, i: int, done: int, missing: int) -> None:
    """Add as much of a prompt as the iteration's budget allows."""
    chunk = min(missing, state.budget)
    state.budget -= chunk
    state.used += chunk
    state.prompt_tokens += chunk
    state.pairs += chunk * done + chunk * (chunk - 1) // 2
    if chunk == missing:
        slots[0, state.decodes + state.complete] = i
        state.complete += 1
        state.partial = NONE_INDEX
    else:
        state.partial, state.partial_done = i, done + chunk


@jit_inner
def _admit(costs: Record, state: Record, requests: Records, slots: Slots) -> bool:
    """Admit the head of the queue if it has arrived, a place is free, and all its tokens fit."""
    i = state.head
    if i == NONE_INDEX or state.partial != NONE_INDEX or state.budget <= 0:
        return False
    tokens = requests[i].input_tokens + requests[i].generated
    if (
        requests[i].ready_s > state.clock_s
        or state.decodes + state.complete >= costs.max_sequences
        or costs.cache_tokens - state.used < tokens
    ):
        return False
    state.head = requests[i].behind
    if requests[i].carried == 0:
        _add_chunk(state, slots, i, 0, tokens)
    else:  # all but its last token is cached, and that one is computed like a decoded token
        state.budget -= 1
        state.used += tokens
        state.decoding += 1
        state.read_tokens += tokens - 1
        slots[0, state.decodes + state.complete] = i
        state.complete += 1
    return True


@jit_inner
def _settle(state: Record, requests: Records, slots: Slots) -> None:
    """Remove every sequence that has just produced its last token; the others keep their order."""
    kept, next_finish = 0, MANY
    for slot in range(state.decodes):
        i, ends_at = slots[0, slot], slots[1, slot]
        if ends_at == state.steps:
            held = requests[i].input_tokens + requests[i].output_tokens - 1
            state.used -= held
            state.cached -= held
            requests[i].finish_s = state.clock_s
        else:
            next_finish = min(next_finish, ends_at)
            slots[0, kept], slots[1, kept] = i, ends_at
            kept += 1
    state.just_finished = state.decodes - kept
    state.in_flight -= state.just_finished
    state.decodes, state.next_finish = kept, next_finish


@jit_inner
def _begin_decoding(state: Record, requests: Records, slots: Slots) -> None:
    """Fully read prompts produce their next token and become decoding sequences."""
    for _ in range(state.complete):
        i = slots[0, state.decodes]
        requests[i].generated += 1
        if np.isnan(requests[i].first_s):
            requests[i].first_s = state.clock_s
        slots[1, state.decodes] = state.steps + requests[i].output_tokens - requests[i].generated
        state.cached += requests[i].input_tokens + requests[i].generated - 1
        state.decodes += 1


@jit_inner
def _pass(state: Record, took_s: float, iterations: int) -> None:
    state.clock_s += took_s
    state.busy_s += took_s
    state.iterations += iterations
    state.steps += iterations
    state.cached += iterations * state.decodes
    state.peak_tokens = max(state.peak_tokens, state.used)
    state.just_finished = 0


@jit_inner
def _iterate(costs: Record, state: Record, requests: Records, slots: Slots) -> None:
    preemptions = state.preemptions
    _free_cache(costs, state, requests, slots)
    state.used += state.decodes
    state.budget = costs.chunk_tokens - state.decodes
    state.decoding, state.read_tokens = state.decodes, state.cached
    state.prompt_tokens = state.pairs = state.complete = 0
    if state.partial != NONE_INDEX and state.budget > 0:
        i, done = state.partial, state.partial_done
        missing = requests[i].input_tokens + requests[i].generated - done
        if costs.cache_tokens - state.used < min(missing, state.budget):
            state.partial = NONE_INDEX
            _requeue(state, requests, i, done)
        else:
            _add_chunk(state, slots, i, done, missing)
    if preemptions == state.preemptions:
        while _admit(costs, state, requests, slots):
            pass
    took_s = _step_s(
        costs, float(state.decoding), float(state.read_tokens), float(state.prompt_tokens), float(state.pairs)
    )
    _pass(state, took_s, 1)
    _begin_decoding(state, requests, slots)
    _settle(state, requests, slots)


@jit_inner
def _leap(costs: Record, state: Record, requests: Records, slots: Slots, until_s: float) -> None:
    """Iterations that only decode, up to the next event: an end, a full cache, an arrival, `until_s`."""
    first_s = _step_s(costs, float(state.decodes), float(state.cached), 0.0, 0.0)
    growth_s = costs.cached_token_s * state.decodes
    if state.head != NONE_INDEX and requests[state.head].ready_s > state.clock_s:
        until_s = min(until_s, requests[state.head].ready_s)
    count = min(state.next_finish - state.steps, (costs.cache_tokens - state.used) // state.decodes)
    if state.clock_s + _leap_s(first_s, growth_s, count) > until_s:
        count = min(count, _iterations_to_pass(first_s, growth_s, until_s - state.clock_s))
    state.used += count * state.decodes
    _pass(state, _leap_s(first_s, growth_s, count), count)
    if state.steps == state.next_finish:
        _settle(state, requests, slots)


@jit_inner
def _only_decodes(costs: Record, state: Record, requests: Records) -> bool:
    """Whether the next iteration only gives every decoding sequence one token."""
    i, free = state.head, costs.cache_tokens - state.used - state.decodes
    if state.partial != NONE_INDEX or free < 0:
        return False
    return bool(
        i == NONE_INDEX
        or requests[i].ready_s > state.clock_s
        or state.decodes >= min(costs.max_sequences, costs.chunk_tokens)
        or free < requests[i].input_tokens + requests[i].generated
    )


@jit_inner
def _next_end_s(costs: Record, state: Record) -> float:
    """The end of the sequence that finishes next, where no other event can come before it."""
    if state.partial != NONE_INDEX or state.head != NONE_INDEX:
        return NEVER
    if state.decodes == 0:
        return inf
    count = state.next_finish - state.steps
    if count * state.decodes > costs.cache_tokens - state.used:
        return NEVER
    first_s = _step_s(costs, float(state.decodes), float(state.cached), 0.0, 0.0)
    return float(state.clock_s + _leap_s(first_s, costs.cached_token_s * state.decodes, count))


@jit_inner
def _advance(costs: Record, state: Record, requests: Records, slots: Slots, until_s: float) -> None:
    while state.clock_s < until_s:
        if state.decodes == 0 and state.partial == NONE_INDEX:
            if state.head == NONE_INDEX or requests[state.head].ready_s >= until_s:
                break
            state.clock_s = max(state.clock_s, requests[state.head].ready_s)
        if state.decodes > 0 and _only_decodes(costs, state, requests):
            _leap(costs, state, requests, slots, until_s)
        else:
            _iterate(costs, state, requests, slots)


@jit_inner
def _in_flight(state: Record, now_s: float) -> int:
    """Requests at a replica at this time, including those that the running iteration will finish."""
    return int(state.in_flight + (state.just_finished if state.clock_s >= now_s else 0))


@jit_entry(SIGNATURE)
def simulate(packed: Records, replicas: Records, requests: Records, slots: Slots, candidates: Slots) -> None:
    """Send each request to the least busy replica among those that its router considers, and run all to the end.

    `requests` are in order of arrival.  `candidates` has a column per considered replica.  Its rows name them, request
    by request; without rows they are the next in turn after the last chosen.  One column and no rows is round robin.
    """
    costs, count, turn = packed[0], len(replicas), 0
    choices = candidates.shape[1]
    for i in range(len(requests)):
        best, fewest = turn, MANY
        if choices > 1:
            for column in range(choices):
                r = (
                    candidates[i, column]
                    if len(candidates) > 0
                    else turn + column - (count if turn + column >= count else 0)
                )
                if replicas[r].quiet_until_s < requests[i].arrival_s:
                    _advance(costs, replicas[r], requests, slots[r], requests[i].arrival_s)
                    replicas[r].quiet_until_s = _next_end_s(costs, replicas[r])
                load = _in_flight(replicas[r], requests[i].arrival_s)
                if load < fewest:
                    best, fewest = r, load
        turn = (best + 1) % count
        requests[i].replica = best
        _enqueue(replicas[best], requests, i)
    for r in range(count):
        _advance(costs, replicas[r], requests, slots[r], inf)
