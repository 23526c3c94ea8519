"""The work of a server, from event to event.

    idle --prompt--> reading --read--> writing --last output written--> idle
    writing --prompt--> reading               the other requests pause; the router starts the prompt
    writing --an output written--> writing

Tokens are counted once per server: all requests on a server write at the same pace, so a request ends when the count
reaches its target.
"""

from math import inf

from fleet.numba_cache import jit_inner
from power.simulator.power_model import IDLE, PROMPT, TOKEN, count, settle
from power.simulator.routing import rest
from power.simulator.state import NO_INDEX, WAKING, RowState


@jit_inner
def _nearest(state: RowState, i: int) -> None:
    """Return the lowest target of the requests that write."""
    server = state.servers[i]
    server.nearest = inf
    for k in range(server.together):
        server.nearest = min(server.nearest, state.slots[i, k].mark)


@jit_inner
def _read(state: RowState, i: int) -> None:
    """End the prompt phase of a request: its first token is written and it joins the batch."""
    server, now_s = state.servers[i], state.row[0].now_s
    slot, request = state.slots[i, server.together], state.requests[server.reads]
    request.first_s = now_s
    slot.request, slot.mark = server.reads, server.written + request.output_tokens
    count(state, server, -1)
    server.phase, server.reads, server.left_s, server.since_s = TOKEN, NO_INDEX, 0.0, now_s
    server.together += 1
    count(state, server, 1)
    _nearest(state, i)
    settle(state, i)


@jit_inner
def _finish(state: RowState, i: int) -> None:
    """End the requests whose outputs are complete."""
    server, now_s, k = state.servers[i], state.row[0].now_s, 0
    server.written, server.since_s = server.nearest, now_s
    while k < server.together:
        slot = state.slots[i, k]
        if slot.mark <= server.written:
            state.requests[slot.request].finish_s = now_s
            last = state.slots[i, server.together - 1]
            slot.request, slot.mark = last.request, last.mark
            server.together -= 1
        else:
            k += 1
    if server.together == 0:
        count(state, server, -1)
        server.phase, server.written = IDLE, 0.0
        count(state, server, 1)
    _nearest(state, i)
    settle(state, i)


@jit_inner
def work(state: RowState, i: int) -> None:
    phase = state.servers[i].phase
    if phase == PROMPT:
        _read(state, i)
    elif phase == TOKEN:
        _finish(state, i)
    elif phase == WAKING:
        rest(state, i, IDLE, 0.0)


@jit_inner
def arrival(state: RowState) -> int:
    """Return the pool of the next arrival."""
    soonest = 0
    for p in range(len(state.pools)):
        if state.pools[p].arrives_s < state.pools[soonest].arrives_s:
            soonest = p
    return soonest


@jit_inner
def arrive(state: RowState, p: int) -> None:
    pool = state.pools[p]
    pool.arriving += 1
    pool.arrives_s = state.requests[pool.arriving].arrival_s if pool.arriving < pool.end else inf
