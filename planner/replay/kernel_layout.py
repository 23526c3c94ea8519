"""What crosses from Python to the compiled kernel: plain records, their layout derived in one place.

A record of costs has one field per field of `StepCosts`, found by `dataclasses.fields`, so that a new field needs no
change here.  One more field, always zero, is named after a digest of the module of `step_s`: a type is part of the key
under which numba stores compiled code, and numba looks for changes only in the file of the kernel itself.
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

NOBODY = -1  # no request


def _digest() -> str:
    try:
        source = inspect.getsource(steps)
    except OSError:  # installed without sources: numba keeps nothing then, as it could not tell what changed
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
        ("ready_s", np.float64),  # when the scheduler may first see it
        ("first_s", np.float64),  # when its first token came, NaN before
        ("finish_s", np.float64),  # when its last token came, NaN before
        ("input_tokens", np.int64),
        ("output_tokens", np.int64),
        ("generated", np.int64),  # when it last began to wait; while it decodes, the slot knows better
        ("carried", np.int64),  # 1: its cache comes with it from a prefill replica
        ("behind", np.int64),  # the request that waits after it
        ("replica", np.int64),
    ]
)

REPLICA = np.dtype(
    [
        ("clock_s", np.float64),  # a boundary between two iterations
        ("quiet_until_s", np.float64),  # nothing finishes before, as long as nothing more is sent here
        ("busy_s", np.float64),
        ("decodes", np.int64),  # sequences past their prompt, in order of admission
        ("cached", np.int64),  # tokens those hold
        ("used", np.int64),  # tokens held by all
        ("steps", np.int64),  # iterations in which every decoding sequence took part
        ("next_finish", np.int64),  # the least of these counts at which a sequence ends
        ("partial", np.int64),  # the one request whose prompt is read in part
        ("partial_done", np.int64),  # tokens of it that are cached
        ("head", np.int64),  # first of those that wait
        ("tail", np.int64),
        ("in_flight", np.int64),  # sent here and not finished
        ("just_finished", np.int64),  # of those that ended, how many at `clock_s`
        ("peak_tokens", np.int64),
        ("preemptions", np.int64),
        ("iterations", np.int64),
        # of the iteration that is being put together
        ("budget", np.int64),  # tokens it can still take
        ("decoding", np.int64),  # sequences that get their next token
        ("read_tokens", np.int64),  # cached tokens of those
        ("prompt_tokens", np.int64),
        ("pairs", np.int64),  # of a prompt token and one before it
        ("complete", np.int64),  # prompts that end in it; they stand in the slots behind the decodes
    ]
)


def pack_costs(costs: StepCosts) -> Records:
    """One record."""
    packed = np.zeros(1, COSTS)
    for field in fields(StepCosts):
        packed[field.name] = getattr(costs, field.name)
    return packed


def fresh_replicas(count: int) -> Records:
    """Idle replicas at time 0."""
    state = np.zeros(count, REPLICA)
    for name in ("partial", "head", "tail"):
        state[name] = NOBODY
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
    """Requests on their way to a pool."""
    requests = np.zeros(len(arrival_s), REQUEST)
    requests["arrival_s"] = arrival_s
    requests["ready_s"] = arrival_s + delay_s
    requests["first_s"] = requests["finish_s"] = np.nan
    requests["input_tokens"], requests["output_tokens"] = input_tokens, output_tokens
    requests["carried"] = carried
    requests["behind"] = requests["replica"] = NOBODY
    return requests
