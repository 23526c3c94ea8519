"""Training jobs: all servers of one compute together, then exchange.  The slowest server sets the pace."""

from fleet.numba_cache import jit_inner
from power.simulator.power_model import COMPUTES, NOT_BEGUN, settle_job
from power.simulator.state import NO_INDEX, RowState

EXCHANGES = 2


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
