"""The records that Python passes to the compiled kernel, with their layout derived in one place.

A record of costs has one field per field of `StepCosts`, from `dataclasses.fields`, so a new field needs no change
here.  One more field, always zero, is named after a digest of the module of `step_s`: the type is part of numba's cache
key, and numba itself checks only the kernel's own file for changes.
"""

import hashlib
import inspect
from dataclasses import fields
from typing import Any, TypeAlias, get_type_hints

import numpy as np
import numpy.typing as npt

from planner.performance import steps
from planner.performance.steps import StepCosts

Records = npt.NDArray[np.void]
Record: TypeAlias = Any  # one of them: its fields are attributes inside the kernel
Slots = npt.NDArray[np.int64]

NONE_INDEX = -1  # no request


def _digest() -> str:
    try:
        source = inspect.getsource(steps)
    except OSError:  # installed without sources: numba caches nothing then, because it cannot detect changes
        source = ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


ARITHMETIC = f"arithmetic_{_digest()}"


def _costs_dtype() -> np.dtype[np.void]:
    hints = get_type_hints(StepCosts)
    named: list[tuple[str, Any]] = [
        (field.name, np.int64 if hints[field.name] is int else np.float64) for field in fields(StepCosts)
    ]
    return np.dtype([*named, (ARITHMETIC, np.int64)])


COSTS = _costs_dtype()

REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),  # at the router of its pool
        ("ready_s", np.float64),  # when the scheduler first receives it
        ("first_s", np.float64),  # time of its first token, NaN before
        ("finish_s", np.float64),  # time of its last token, NaN before
        ("input_tokens", np.int64),
        ("output_tokens", np.int64),
        ("generated", np.int64),  # start of its last wait; while it decodes, the slot has the count
        ("carried", np.int64),  # 1: its cache comes with it from a prefill replica
        ("behind", np.int64),  # the next request in the queue
        ("replica", np.int64),
    ]
)

REPLICA = np.dtype(
    [
        ("clock_s", np.float64),  # a boundary between two iterations
        ("quiet_until_s", np.float64),  # nothing finishes before this time unless the router sends more
        ("busy_s", np.float64),
        ("decodes", np.int64),  # sequences past their prompt, in order of admission
        ("cached", np.int64),  # tokens in their cache
        ("used", np.int64),  # cached tokens of all requests
        ("steps", np.int64),  # iterations in which every decoding sequence took part
        ("next_finish", np.int64),  # the lowest of these counts at which a sequence ends
        ("partial", np.int64),  # the one partly read prompt
        ("partial_done", np.int64),  # its cached tokens
        ("head", np.int64),  # head of the queue
        ("tail", np.int64),
        ("in_flight", np.int64),  # sent here and not finished
        ("just_finished", np.int64),  # requests that finished at `clock_s`
        ("peak_tokens", np.int64),
        ("preemptions", np.int64),
        ("iterations", np.int64),
        # of the iteration in construction
        ("budget", np.int64),  # its remaining budget
        ("decoding", np.int64),  # sequences that get their next token
        ("read_tokens", np.int64),  # cached tokens of those
        ("prompt_tokens", np.int64),
        ("pairs", np.int64),  # of a prompt token and one before it
        ("complete", np.int64),  # prompts that end in it; they follow the decoding sequences in the slots
    ]
)


def pack_costs(costs: StepCosts) -> Records:
    packed = np.zeros(1, COSTS)
    for field in fields(StepCosts):
        packed[field.name] = getattr(costs, field.name)
    return packed


def fresh_replicas(count: int) -> Records:
    state = np.zeros(count, REPLICA)
    for name in ("partial", "head", "tail"):
        state[name] = NONE_INDEX
    state["quiet_until_s"] = np.inf
    return state


def fresh_requests(
    *,
    arrival_s: npt.NDArray[np.float64],
    input_tokens: npt.NDArray[np.int64],
    output_tokens: npt.NDArray[np.int64],
    delay_s: float,
    carried: bool,
) -> Records:
    requests = np.zeros(len(arrival_s), REQUEST)
    requests["arrival_s"] = arrival_s
    requests["ready_s"] = arrival_s + delay_s
    requests["first_s"] = requests["finish_s"] = np.nan
    requests["input_tokens"], requests["output_tokens"] = input_tokens, output_tokens
    requests["carried"] = carried
    requests["behind"] = requests["replica"] = NONE_INDEX
    return requests
