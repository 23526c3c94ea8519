"""The router: the server of the next request, sleeping servers, and prompts that wait for power.

A pool has one queue.  The router fills a server up to `together` requests before it uses an idle one.  If no server is
idle, the emptiest takes the request, up to its memory and the row's limit (`RowSpec.together`).

The admission rule is that of `power.admission`.  Training jobs count as computing.
"""

from math import isnan

from fleet.numba_cache import jit_inner
from power.admission import admits, limit_w
from power.simulator.power_model import IDLE, PARKED, PROMPT, TOKEN, bring, count, prompt_w, settle
from power.simulator.state import NO_INDEX, WAKING, Record, RowState

_limit_w = jit_inner(limit_w)
_admits = jit_inner(admits)


@jit_inner
def choose(state: RowState, pool: Record) -> int:
    """Return the server for the next request of a pool; NO_INDEX if all are full or read prompts."""
    wanted = int(state.row[0].high_together if pool.priority else state.row[0].low_together)
    idle, fullest, emptiest, most, least = NO_INDEX, NO_INDEX, NO_INDEX, 0, 1 << 62
    for i in range(pool.first, pool.first + pool.servers):
        server = state.servers[i]
        if server.phase == IDLE:
            if idle == NO_INDEX:
                idle = i
                if wanted == 1:
                    return idle  # no server is filled before it
        elif server.phase == TOKEN:
            holds = min(wanted, state.kinds[server.kind, 0].most_together)
            if most < server.together < holds:
                fullest, most = i, server.together
            if server.together < min(least, state.kinds[server.kind, 0].most_together):
                emptiest, least = i, server.together
    if fullest != NO_INDEX:
        return fullest
    return idle if idle != NO_INDEX else emptiest


@jit_inner
def admitted(state: RowState, i: int, request: Record) -> bool:
    """Return whether the power limit admits a prompt on a server."""
    row, server = state.row[0], state.servers[i]
    waited_s = 0.0 if isnan(request.held_since_s) else row.now_s - request.held_since_s
    max_w = _limit_w(server.priority, waited_s, row.patience_s, row.low_limit_w, row.high_limit_w)
    step_w = prompt_w(state.kinds[server.kind, 1], server.prompt_clock) - server.modelled_w
    return bool(_admits(row.ratio * (row.modelled_w + row.swing_w), row.ratio * step_w, max_w))


@jit_inner
def start(state: RowState, i: int, r: int) -> None:
    """Start the prompt of a request on a server; its other requests pause."""
    server, request, now_s = state.servers[i], state.requests[r], state.row[0].now_s
    kind, tokens = state.kinds[server.kind, 0], request.prompt_tokens
    bring(server, now_s)
    count(state, server, -1)
    server.phase, server.reads = PROMPT, r
    server.left_s = kind.prompt_s0 + kind.prompt_s1 * tokens + kind.prompt_s2 * tokens * tokens
    count(state, server, 1)
    request.start_s, request.server = now_s, i
    settle(state, i)


@jit_inner
def dispatch(state: RowState) -> None:
    """Start all requests that can start, high-priority pools first."""
    for priority in (1, 0):
        for p in range(len(state.pools)):
            pool = state.pools[p]
            while pool.priority == priority and pool.head < pool.arriving:
                i, request = choose(state, pool), state.requests[pool.head]
                if i == NO_INDEX:
                    break
                if not admitted(state, i, request):
                    if isnan(request.held_since_s):
                        request.held_since_s = state.row[0].now_s
                    break
                start(state, i, pool.head)
                pool.head += 1


@jit_inner
def rest(state: RowState, i: int, phase: int, left_s: float) -> None:
    """Set the phase of a server without requests: idle, parked or waking."""
    server = state.servers[i]
    bring(server, state.row[0].now_s)
    count(state, server, -1)
    server.phase, server.left_s = phase, left_s
    count(state, server, 1)
    settle(state, i)


@jit_inner
def park(state: RowState) -> None:
    """Put idle servers to sleep, the last servers of a pool first; wake those that are needed."""
    row = state.row[0]
    for p in range(len(state.pools)):
        pool = state.pools[p]
        if row.parked_share == 0.0 and pool.asleep == 0:
            continue
        allowed = int(row.parked_share * pool.servers)
        waiting = choose(state, pool) == NO_INDEX and pool.head < pool.arriving
        wanted = pool.arriving - pool.head if waiting else 0
        for i in range(pool.first, pool.first + pool.servers):
            wanted -= state.servers[i].phase == WAKING
        surplus = max(pool.asleep - allowed, wanted)
        for i in range(pool.first, pool.first + pool.servers):
            if surplus > 0 and state.servers[i].phase == PARKED:
                rest(state, i, WAKING, state.kinds[state.servers[i].kind, 0].wake_s)
                pool.asleep, surplus = pool.asleep - 1, surplus - 1
        if pool.head < pool.arriving:
            continue
        for k in range(pool.servers - 1, -1, -1):
            if pool.asleep < allowed and state.servers[pool.first + k].phase == IDLE:
                rest(state, pool.first + k, PARKED, 0.0)
                pool.asleep += 1
