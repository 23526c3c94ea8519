"""The power and speed of a server at this moment: the formulas of `power.server_model` in the engine.

A function that changes the phase, the batch or the clocks of a server calls `bring` before and `settle` after.  Work is
stored as time left at full clock, or as tokens written, so a change of clock rescales work in progress exactly.
"""

from math import inf

from fleet.numba_cache import jit_inner
from power.controls import Phase
from power.simulator.state import WAKING, Record, RowState

IDLE, TOKEN, PROMPT = int(Phase.IDLE), int(Phase.TOKEN), int(Phase.PROMPT)
TRAINING, PARKED = int(Phase.TRAINING), int(Phase.PARKED)
NOT_BEGUN, COMPUTES = 0, 1  # stages of a training job


@jit_inner
def prompt_w(kind: Record, clock: float) -> float:
    return float(kind.prompt_floor_w + kind.prompt_rise_w * clock**kind.prompt_exponent)


@jit_inner
def draw_w(kind: Record, phase: int, together: int, token_clock: float, prompt_clock: float) -> float:
    if phase == TOKEN:
        rise_w = kind.token_rise_w * token_clock**kind.token_exponent
        if together > 1 and kind.batch_exponent > 0.0:
            rise_w *= together**kind.batch_exponent
        return float(kind.token_floor_w + rise_w)
    if phase == PROMPT:
        return prompt_w(kind, prompt_clock)
    return float(kind.parked_w if phase == PARKED else kind.idle_w)


@jit_inner
def training_w(job: Record, clock: float, stage: int) -> float:
    """Return the power of one server of a job in a stage of its iteration."""
    if stage == COMPUTES:
        return float(job.trough_w + (job.compute_w - job.trough_w) * clock**job.exponent)
    return float(job.trough_w)


@jit_inner
def rate_of(kind: Record, server: Record) -> float:
    """Return the rate of work: seconds of full clock, or tokens, per second."""
    if server.phase == PROMPT:
        return float(1.0 / (1.0 + kind.prompt_sensitivity * (1.0 / server.prompt_clock - 1.0)))
    if server.phase == TOKEN:
        clock = server.token_clock
        slowdown = max(1.0 + kind.token_sensitivity * (1.0 / clock - 1.0), kind.token_floor_time / clock)
        return float(1.0 / (kind.token_s * (1.0 + kind.batch_growth * (server.together - 1)) * slowdown))
    return 1.0


@jit_inner
def bring(server: Record, now_s: float) -> None:
    if server.phase == TOKEN:
        server.written = min(server.nearest, server.written + (now_s - server.since_s) * server.rate)
    else:
        server.left_s = max(0.0, server.left_s - (now_s - server.since_s) * server.rate)
    server.since_s = now_s


@jit_inner
def bring_job(job: Record, now_s: float) -> None:
    job.left_s = max(0.0, job.left_s - (now_s - job.since_s) * job.rate)
    job.since_s = now_s


@jit_inner
def count(state: RowState, server: Record, by: int) -> None:
    """Add a server to the counts, or remove it; a waking server counts as idle."""
    phase = IDLE if server.phase == WAKING else server.phase
    state.counts[server.kind, server.priority, phase] += by
    if phase in (TOKEN, PROMPT):
        state.row[0].busy += by


@jit_inner
def schedule(state: RowState, i: int) -> None:
    """Store the time of the next event of a server in the tournament tree."""
    server, tree = state.servers[i], state.tree
    node = len(tree) // 2 + i
    tree[node] = min(server.works_s, server.due_s, server.brake_due_s)
    while node > 1:
        node //= 2
        tree[node] = min(tree[2 * node], tree[2 * node + 1])


@jit_inner
def next_server(state: RowState) -> int:
    """Return the server with the earliest event."""
    tree, node = state.tree, 1
    leaves = len(tree) // 2
    while node < leaves:
        node = 2 * node if tree[2 * node] == tree[node] else 2 * node + 1
    return node - leaves


@jit_inner
def redraw(state: RowState, server: Record, watts: float, modelled_w: float) -> None:
    """Set the power of a server, before its bias."""
    row = state.row[0]
    row.row_w += watts * server.bias - server.watts
    row.modelled_w += modelled_w - server.modelled_w
    server.watts, server.modelled_w = watts * server.bias, modelled_w


@jit_inner
def settle(state: RowState, i: int) -> None:
    """Set rate, power and next event of a server that serves."""
    server = state.servers[i]
    true, nominal = state.kinds[server.kind, 0], state.kinds[server.kind, 1]
    phase, together = server.phase, server.together
    server.rate = rate_of(true, server)
    if phase == TOKEN:
        server.works_s = server.since_s + (server.nearest - server.written) / server.rate
    elif phase in (PROMPT, WAKING):
        server.works_s = server.since_s + server.left_s / server.rate
    else:
        server.works_s = inf
    token_clock, prompt_clock = server.token_clock, server.prompt_clock
    redraw(
        state,
        server,
        draw_w(true, phase, together, token_clock, prompt_clock),
        draw_w(nominal, phase, together, token_clock, prompt_clock),
    )
    schedule(state, i)


@jit_inner
def settle_job(state: RowState, j: int) -> None:
    """Set pace and power of a job: its slowest server sets the pace."""
    job, row = state.jobs[j], state.row[0]
    slowest, swing_w = 1.0, 0.0
    for i in range(job.first, job.first + job.servers):
        server = state.servers[i]
        slowest = min(slowest, server.token_clock)
        if job.stage == NOT_BEGUN:
            kind = state.kinds[server.kind, 0]
            redraw(state, server, kind.idle_w, state.kinds[server.kind, 1].idle_w)
        else:
            watts = training_w(job, server.token_clock, job.stage)
            redraw(state, server, watts, watts)
        swing_w += training_w(job, server.token_clock, COMPUTES) - server.modelled_w
    row.swing_w += swing_w - job.swing_w
    job.swing_w = swing_w
    job.rate = slowest if job.stage == COMPUTES else 1.0
    job.next_s = job.since_s + job.left_s / job.rate
