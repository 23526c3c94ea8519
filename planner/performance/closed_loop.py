"""A replica with a constant number of requests of one size, as in public benchmarks.

Requests alternate between a queue for the prompt's turn and decoding.  That is a closed network of one queueing station
and one delay; its mean wait solves Bard's and Schweitzer's equation for mean value analysis (Bard 1979).  A fitted
factor scales the queue that a prompt finds, because requests that start together stay together.  Requests beyond the
cache's capacity wait for a place.  (docs/explanation/planner/performance.md, section 3)
"""

from dataclasses import dataclass

import numpy as np

from planner.performance.coefficients import Reached
from planner.performance.hardware_demand import Array, Demands
from planner.performance.step_time import decode_s, prompt_alone_s, prompt_work_s

ITERATIONS = 6  # of the fixed point between batch and times; the batch changes by less than 1 % after four
SHARPNESS = 6.0  # of the soft minimum of concurrency and cache capacity


@dataclass(frozen=True, slots=True)
class Split:
    """Prefill on separate replicas: their demands, and the number of each kind."""

    prefill: Demands
    prefill_replicas: Array
    decode_replicas: Array


@dataclass(frozen=True, slots=True)
class Physical:
    """Times before the correction."""

    tpot_s: Array
    ttft_s: Array
    batch: Array  # sequences that decode at once


def closed_loop(
    demand: Demands,
    reached: Reached,
    *,
    concurrency: Array,
    split: Split | None = None,
    speculative: Array | float = 0.0,
) -> Physical:
    """Mean times at this concurrency of the whole deployment."""
    per_decode, per_prefill, shared = concurrency, concurrency, np.ones_like(concurrency)
    prompts, work_s = demand, reached.interference * prompt_work_s(demand, reached)
    if split is not None:
        apart = split.prefill_replicas > 0  # 0 marks a replica that prefills and decodes
        per_decode = concurrency / np.where(apart, split.decode_replicas, 1.0)
        per_prefill = concurrency / np.where(apart, split.prefill_replicas, 1.0)
        shared = np.where(apart, 0.0, 1.0)
        prompts = split.prefill
        work_s = np.where(apart, prompt_work_s(prompts, reached), work_s)
    running = soft_min(per_decode, demand.sequences * reached.cache_capacity)
    waiting_for_turn = np.where(shared > 0, running, per_prefill)
    guesses = np.where(np.asarray(speculative) > 0, reached.speculation, 1.0)

    def times(batch: Array) -> tuple[Array, Array, Array]:
        step_s = decode_s(demand, reached, batch) / guesses
        tpot_s = step_s + shared * batch * work_s / demand.output_tokens
        decoding_s = demand.output_tokens * tpot_s
        return step_s, tpot_s, _turn_s(work_s, decoding_s, waiting_for_turn, burst=reached.burst)

    batch = running
    for _ in range(ITERATIONS - 1):
        step_s, tpot_s, turn_s = times(batch)
        decoding_s = demand.output_tokens * tpot_s
        batch = np.maximum(1.0, running * decoding_s / (decoding_s + turn_s))
    step_s, tpot_s, turn_s = times(batch)
    decoding_s = demand.output_tokens * tpot_s
    place_wait_s = np.maximum(0.0, per_decode - running) / running * (decoding_s + turn_s)
    ttft_s = (
        reached.request_s
        + prompt_alone_s(prompts, reached)
        + (turn_s - work_s)
        + reached.start * waiting_for_turn * work_s
        + reached.first_steps * step_s
        + np.where(shared > 0, place_wait_s, reached.transfer_s)
    )
    return Physical(tpot_s, ttft_s, batch)


def soft_min(one: Array, other: Array) -> Array:
    """The smaller of two, smoothed where they are close, because the cache fills unevenly."""
    return np.asarray((one**-SHARPNESS + other**-SHARPNESS) ** (-1 / SHARPNESS))


def _turn_s(work_s: Array, decoding_s: Array, customers: Array, *, burst: float) -> Array:
    """Wait for the turn and the turn itself: W = w (1 + burst (N - 1) W / (W + Z)), at most all requests' work."""
    linear = decoding_s - work_s * (1 + burst * np.maximum(0.0, customers - 1))
    wait_s = (-linear + np.sqrt(linear**2 + 4 * work_s * decoding_s)) / 2
    return np.asarray(np.minimum(wait_s, work_s * customers))
