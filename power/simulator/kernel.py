"""The compiled engine of a row: from event to event, and back to Python only when a decision could change something.

Events: a request arrives, a prompt was read, an answer is written, a server is awake, a training job computes or
exchanges, an order or the brake takes effect, a window of the meter ends.  Between two events all power is constant, so
energy is a sum of products.  docs/power/simulator.md has the state machines.

Importing this module compiles it, or loads what an earlier process compiled.  Only `power.simulator.run` does, late.
"""

from numba import float64, from_dtype, types, void

from fleet.numba_cache import jit_entry, jit_inner
from power.simulator.command_queue import brake, land, order, reload
from power.simulator.meter import elapse, meter
from power.simulator.power_model import next_server
from power.simulator.routing import dispatch, park
from power.simulator.serving import arrival, arrive, work
from power.simulator.state import JOB, KIND, NOBODY, POOL, REQUEST, ROW, SERVER, SLOT, WINDOW_S, Board
from power.simulator.training_jobs import next_job, swing

BOARD = types.NamedTuple(  # type: ignore[no-untyped-call]
    [
        from_dtype(SERVER)[::1],
        from_dtype(SLOT)[:, ::1],
        *(from_dtype(dtype)[::1] for dtype in (REQUEST, POOL, JOB)),
        from_dtype(KIND)[:, ::1],
        from_dtype(ROW)[::1],
        float64[:, :, ::1],
        *(float64[::1] for _ in range(3)),
    ],
    Board,
)


@jit_inner
def _happen(board: Board, at_s: float) -> None:
    """Whatever is due at this moment, one thing."""
    p, j = arrival(board), next_job(board)
    if len(board.pools) > 0 and board.pools[p].arrives_s == at_s:
        arrive(board, p)
    elif j != NOBODY and board.jobs[j].next_s == at_s:
        swing(board, j)
    else:
        i = next_server(board)
        if board.servers[i].due_s == at_s:
            land(board, i)
        elif board.servers[i].brake_due_s == at_s:
            brake(board, i)
        else:
            work(board, i)


@jit_inner
def _next_s(board: Board) -> float:
    """When something happens next."""
    at_s = board.tree[1]
    if len(board.pools) > 0:
        at_s = min(at_s, board.pools[arrival(board)].arrives_s)
    j = next_job(board)
    return float(at_s if j == NOBODY else min(at_s, board.jobs[j].next_s))


@jit_entry(void(BOARD, float64, float64))
def advance(board: Board, until_s: float, calm_w: float) -> None:
    """Run to the end of the first window whose delivered reading is not below `calm_w`, or fails to come, or ends at
    `until_s` or later."""
    row = board.row[0]
    if row.ordered:
        order(board)
    changed = False
    while True:
        tick_s = (row.ticks + 1) * WINDOW_S
        at_s = _next_s(board)
        if changed and at_s > row.now_s:  # all that is due at one moment happens before anything starts
            changed = False
            dispatch(board)
            continue
        if at_s < tick_s:
            elapse(row, at_s)
            _happen(board, at_s)
            changed = True
            continue
        elapse(row, tick_s)
        fresh = meter(board)
        if row.now_s >= row.reloaded_s:
            reload(board)
        park(board)
        dispatch(board)
        if not fresh or row.seen_w >= calm_w or row.now_s >= until_s:
            return
