"""A server's work, from event to event.

    idle --prompt--> reads --read--> writes --last answer written--> idle
    writes --prompt--> reads                  those who write pause; the prompt was begun by the router
    writes --an answer written--> writes

Tokens are counted once per server: all who write there get them at the same pace, so a request is done when the count
has reached its mark.
"""

from math import inf

from fleet.numba_cache import jit_inner
from power.simulator.power_model import IDLE, PROMPT, TOKEN, count, settle
from power.simulator.routing import rest
from power.simulator.state import NOBODY, WAKING, Board


@jit_inner
def _nearest(board: Board, i: int) -> None:
    """The least mark of those who write."""
    server = board.servers[i]
    server.nearest = inf
    for k in range(server.together):
        server.nearest = min(server.nearest, board.slots[i, k].mark)


@jit_inner
def _read(board: Board, i: int) -> None:
    """A prompt was read: its first token is there, it writes with the others."""
    server, now_s = board.servers[i], board.row[0].now_s
    slot, request = board.slots[i, server.together], board.requests[server.reads]
    request.first_s = now_s
    slot.request, slot.mark = server.reads, server.written + request.output_tokens
    count(board, server, -1)
    server.phase, server.reads, server.left_s, server.since_s = TOKEN, NOBODY, 0.0, now_s
    server.together += 1
    count(board, server, 1)
    _nearest(board, i)
    settle(board, i)


@jit_inner
def _finish(board: Board, i: int) -> None:
    """Answers are written to the end."""
    server, now_s, k = board.servers[i], board.row[0].now_s, 0
    server.written, server.since_s = server.nearest, now_s
    while k < server.together:
        slot = board.slots[i, k]
        if slot.mark <= server.written:
            board.requests[slot.request].finish_s = now_s
            last = board.slots[i, server.together - 1]
            slot.request, slot.mark = last.request, last.mark
            server.together -= 1
        else:
            k += 1
    if server.together == 0:
        count(board, server, -1)
        server.phase, server.written = IDLE, 0.0
        count(board, server, 1)
    _nearest(board, i)
    settle(board, i)


@jit_inner
def work(board: Board, i: int) -> None:
    """What a server did is done."""
    phase = board.servers[i].phase
    if phase == PROMPT:
        _read(board, i)
    elif phase == TOKEN:
        _finish(board, i)
    elif phase == WAKING:
        rest(board, i, IDLE, 0.0)


@jit_inner
def arrival(board: Board) -> int:
    """The pool where a request arrives next."""
    soonest = 0
    for p in range(len(board.pools)):
        if board.pools[p].arrives_s < board.pools[soonest].arrives_s:
            soonest = p
    return soonest


@jit_inner
def arrive(board: Board, p: int) -> None:
    """A request joins its queue."""
    pool = board.pools[p]
    pool.arriving += 1
    pool.arrives_s = board.requests[pool.arriving].arrival_s if pool.arriving < pool.end else inf
