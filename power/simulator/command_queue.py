"""Commands in flight to the servers, the brake, and faults of both.

    idle --command--> in flight --delay--> in force      one command in flight per server (POLCA)
    in flight --command--> in flight                     the newest value follows when the present command has landed
    in flight --delay, ignored--> idle                   nothing changes and nothing is reported

The brake has its own path: it takes effect, or releases, `brake_delay_s` after its command, over any locked clock.

Faults draw from a stream of their own, so that a run is the same on every machine.
"""

from math import inf

import numpy as np

from fleet.numba_cache import jit_inner
from power.simulator.power_model import bring, bring_job, schedule, settle, settle_job
from power.simulator.state import NO_INDEX, Record, RowState


@jit_inner
def _drawn(row: Record) -> float:
    """Return a number from 0 to 1 (SplitMix64, Steele, Lea, Flood 2014)."""
    row.random = row.random + np.uint64(0x9E3779B97F4A7C15)
    mixed = row.random
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@jit_inner
def strikes(row: Record, share: float, from_s: float, to_s: float) -> bool:
    return bool(share > 0.0 and from_s <= row.now_s < to_s and _drawn(row) < share)


@jit_inner
def run_at(state: RowState, i: int) -> None:
    """Derive the clocks in force from lock and brake."""
    server, now_s = state.servers[i], state.row[0].now_s
    most = state.kinds[server.kind, 0].brake_clock if server.braked else 1.0
    token_clock, prompt_clock = min(server.token_lock, most), min(server.prompt_lock, most)
    if server.job != NO_INDEX:
        bring_job(state.jobs[server.job], now_s)
        server.token_clock, server.prompt_clock = token_clock, prompt_clock
        settle_job(state, server.job)
        schedule(state, i)
        return
    bring(server, now_s)
    server.token_clock, server.prompt_clock = token_clock, prompt_clock
    settle(state, i)


@jit_inner
def _send(state: RowState, i: int) -> None:
    """Send the wanted clocks, unless a command is in flight: then the newest value follows it."""
    server, row = state.servers[i], state.row[0]
    if server.due_s == inf:
        server.token_sent, server.prompt_sent = server.token_wanted, server.prompt_wanted
        server.due_s = row.now_s + row.command_delay_s
        if strikes(row, row.late_share, row.late_from_s, row.late_to_s):
            server.due_s += row.late_s
        schedule(state, i)


@jit_inner
def command_servers(state: RowState) -> None:
    """Pass the row's clocks to the commanded servers."""
    row = state.row[0]
    for i in range(len(state.servers)):
        server = state.servers[i]
        if server.commanded:
            server.commanded = 0
            if server.job != NO_INDEX:
                server.token_wanted = server.prompt_wanted = row.training
            elif server.priority:
                server.token_wanted, server.prompt_wanted = row.high_token, row.high_prompt
            else:
                server.token_wanted, server.prompt_wanted = row.low_token, row.low_prompt
            _send(state, i)
        schedule(state, i)
    row.has_commands = 0


@jit_inner
def land(state: RowState, i: int) -> None:
    """Apply or lose the command in flight; a newer value follows."""
    server, row = state.servers[i], state.row[0]
    server.due_s = inf
    if strikes(row, row.ignored_share, row.ignored_from_s, row.ignored_to_s):
        row.ignored += 1
        schedule(state, i)
    else:
        row.commands, row.changes = row.commands + 1, row.changes + 1
        server.token_lock, server.prompt_lock = server.token_sent, server.prompt_sent
        run_at(state, i)
    if server.token_sent != server.token_wanted or server.prompt_sent != server.prompt_wanted:
        _send(state, i)


@jit_inner
def brake(state: RowState, i: int) -> None:
    server, row = state.servers[i], state.row[0]
    server.brake_due_s = inf
    row.changes += 1
    server.braked = server.brake_to
    run_at(state, i)


@jit_inner
def reload(state: RowState) -> None:
    """Reload drivers; their servers lose their caps."""
    row = state.row[0]
    for i in range(len(state.servers)):
        server = state.servers[i]
        if strikes(row, row.reloaded_share, row.reloaded_s, inf):
            server.epoch, row.changes = server.epoch + 1, row.changes + 1
            server.token_lock = server.prompt_lock = 1.0
            run_at(state, i)
    row.reloaded_s = inf
