"""Simulated time and meter windows."""

from fleet.numba_cache import jit_inner
from power.simulator.rng import strikes
from power.simulator.state import WINDOW_S, Record, RowState


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
