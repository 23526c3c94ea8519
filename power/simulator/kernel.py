"""The compiled engine of a row: from event to event, and back to Python only if a decision could change something.

Events: a request arrives, a prompt was read, an output is written, a server woke up, a training job computes or
exchanges, a command or the brake takes effect, a window of the meter ends.  Between two events all power is constant,
so energy is a sum of products.  docs/explanation/power/simulator.md has the state machines.

Importing this module compiles it, or loads the result of an earlier process.  Only `power.simulator.run` imports it.
"""

from numba import float64, from_dtype, types, void

from fleet.numba_cache import jit_entry, jit_inner
from power.simulator.command_queue import brake, command_servers, land, reload, strikes
from power.simulator.power_model import COMPUTES, NOT_BEGUN, next_server, settle_job
from power.simulator.routing import dispatch, park
from power.simulator.serving import arrival, arrive, work
from power.simulator.state import JOB, KIND, NO_INDEX, POOL, REQUEST, ROW, SERVER, SLOT, WINDOW_S, Record, RowState

EXCHANGES = 2

ROW_STATE = types.NamedTuple(  # type: ignore[no-untyped-call]
    [
        from_dtype(SERVER)[::1],
        from_dtype(SLOT)[:, ::1],
        *(from_dtype(dtype)[::1] for dtype in (REQUEST, POOL, JOB)),
        from_dtype(KIND)[:, ::1],
        from_dtype(ROW)[::1],
        float64[:, :, ::1],
        *(float64[::1] for _ in range(3)),
    ],
    RowState,
)


@jit_inner
def swing(state: RowState, j: int) -> None:
    """Start a training job, or switch it between computing and exchanging."""
    job = state.jobs[j]
    job.since_s = state.row[0].now_s
    if job.stage == COMPUTES:
        job.stage, job.left_s = EXCHANGES, job.exchange_s
    else:
        job.iterations += job.stage == EXCHANGES
        if job.stage == NOT_BEGUN:
            job.since_s = job.start_s
        job.stage, job.left_s = COMPUTES, job.compute_s
    settle_job(state, j)


@jit_inner
def next_job(state: RowState) -> int:
    """Return the job with the next change of phase; NO_INDEX if there are no jobs."""
    soonest = NO_INDEX
    for j in range(len(state.jobs)):
        if soonest == NO_INDEX or state.jobs[j].next_s < state.jobs[soonest].next_s:
            soonest = j
    return soonest


@jit_inner
def elapse(row: Record, until_s: float) -> None:
    """Advance time at constant power."""
    span_s = until_s - row.now_s
    row.window_j += row.row_w * span_s
    row.window_modelled_j += row.modelled_w * span_s
    row.busy_server_s += row.busy * span_s
    row.now_s = until_s


@jit_inner
def meter(state: RowState) -> bool:
    """End a window; return whether a fresh reading came."""
    row, servers = state.row[0], state.servers
    state.readings[row.ticks], state.modelled[row.ticks] = row.window_j / WINDOW_S, row.window_modelled_j / WINDOW_S
    row.energy_j += row.window_j
    row.window_j = row.window_modelled_j = 0.0
    row.row_w = row.modelled_w = 0.0  # recomputed, so that sums of differences do not drift
    for i in range(len(servers)):
        row.row_w += servers[i].watts
        row.modelled_w += servers[i].modelled_w
    newest = row.ticks - row.delay_windows
    row.ticks += 1
    lost = row.stale_from_s <= row.now_s < row.stale_to_s
    if newest < 0 or lost or strikes(row, row.missing_share, row.missing_from_s, row.missing_to_s):
        return False
    row.reading_index, row.reading_w = newest, state.readings[newest]
    if row.meter_from_s <= row.now_s < row.meter_to_s:
        row.reading_w *= row.meter_factor
    row.ratio += row.smoothing * (row.reading_w / state.modelled[newest] - row.ratio)
    return True


@jit_inner
def _happen(state: RowState, at_s: float) -> None:
    """Process one event that is due now."""
    p, j = arrival(state), next_job(state)
    if len(state.pools) > 0 and state.pools[p].arrives_s == at_s:
        arrive(state, p)
    elif j != NO_INDEX and state.jobs[j].next_s == at_s:
        swing(state, j)
    else:
        i = next_server(state)
        if state.servers[i].due_s == at_s:
            land(state, i)
        elif state.servers[i].brake_due_s == at_s:
            brake(state, i)
        else:
            work(state, i)


@jit_inner
def _next_s(state: RowState) -> float:
    at_s = state.tree[1]
    if len(state.pools) > 0:
        at_s = min(at_s, state.pools[arrival(state)].arrives_s)
    j = next_job(state)
    return float(at_s if j == NO_INDEX else min(at_s, state.jobs[j].next_s))


@jit_entry(void(ROW_STATE, float64, float64))
def advance(state: RowState, until_s: float, calm_w: float) -> None:
    """Run until a window ends without a reading, with one of at least `calm_w`, or at `until_s` or later."""
    row = state.row[0]
    if row.has_commands:
        command_servers(state)
    changed = False
    while True:
        tick_s = (row.ticks + 1) * WINDOW_S
        at_s = _next_s(state)
        if changed and at_s > row.now_s:  # everything due at one moment happens before a request starts
            changed = False
            dispatch(state)
            continue
        if at_s < tick_s:
            elapse(row, at_s)
            _happen(state, at_s)
            changed = True
            continue
        elapse(row, tick_s)
        fresh = meter(state)
        if row.now_s >= row.reloaded_s:
            reload(state)
        park(state)
        dispatch(state)
        if not fresh or row.reading_w >= calm_w or row.now_s >= until_s:
            return
