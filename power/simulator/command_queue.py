"""Orders on their way to the servers, the brake, and what goes wrong with both.

    idle --told--> under way --delay--> in force         one order under way per server (POLCA: one command in flight)
    under way --told--> under way                        the newest wish is ordered when the present order has landed
    under way --delay, ignored--> idle                   nothing changes, nobody is told

The brake is a line of its own: it bites, or lets go, `brake_delay_s` after it was ordered, over whatever lock holds.
"""

from math import inf

from fleet.numba_cache import jit_inner
from power.simulator.power_model import bring, bring_job, schedule, settle, settle_job
from power.simulator.rng import strikes
from power.simulator.state import NOBODY, Board


@jit_inner
def run_at(board: Board, i: int) -> None:
    """Lock and brake give the clocks that a server runs at."""
    server, now_s = board.servers[i], board.row[0].now_s
    most = board.kinds[server.kind, 0].brake_clock if server.braked else 1.0
    token_clock, prompt_clock = min(server.token_lock, most), min(server.prompt_lock, most)
    if server.job != NOBODY:
        bring_job(board.jobs[server.job], now_s)
        server.token_clock, server.prompt_clock = token_clock, prompt_clock
        settle_job(board, server.job)
        schedule(board, i)
        return
    bring(server, now_s)
    server.token_clock, server.prompt_clock = token_clock, prompt_clock
    settle(board, i)


@jit_inner
def _send(board: Board, i: int) -> None:
    """Order what is wanted, unless an order is under way: then what is wanted by then follows it."""
    server, row = board.servers[i], board.row[0]
    if server.due_s == inf:
        server.token_sent, server.prompt_sent = server.token_wanted, server.prompt_wanted
        server.due_s = row.now_s + row.command_delay_s
        if strikes(row, row.late_share, row.late_from_s, row.late_to_s):
            server.due_s += row.late_s
        schedule(board, i)


@jit_inner
def order(board: Board) -> None:
    """Hand the row's clocks to the servers that are told."""
    row = board.row[0]
    for i in range(len(board.servers)):
        server = board.servers[i]
        if server.told:
            server.told = 0
            if server.job != NOBODY:
                server.token_wanted = server.prompt_wanted = row.training
            elif server.priority:
                server.token_wanted, server.prompt_wanted = row.high_token, row.high_prompt
            else:
                server.token_wanted, server.prompt_wanted = row.low_token, row.low_prompt
            _send(board, i)
        schedule(board, i)
    row.ordered = 0


@jit_inner
def land(board: Board, i: int) -> None:
    """The order under way takes effect, or is lost; what has been wanted since follows."""
    server, row = board.servers[i], board.row[0]
    server.due_s = inf
    if strikes(row, row.ignored_share, row.ignored_from_s, row.ignored_to_s):
        row.ignored += 1
        schedule(board, i)
    else:
        row.commands, row.changes = row.commands + 1, row.changes + 1
        server.token_lock, server.prompt_lock = server.token_sent, server.prompt_sent
        run_at(board, i)
    if server.token_sent != server.token_wanted or server.prompt_sent != server.prompt_wanted:
        _send(board, i)


@jit_inner
def brake(board: Board, i: int) -> None:
    """The brake of a server bites, or lets go."""
    server, row = board.servers[i], board.row[0]
    server.brake_due_s = inf
    if strikes(row, row.brake_ignored_share, row.ignored_from_s, row.ignored_to_s):
        schedule(board, i)
    else:
        row.changes += 1
        server.braked = server.brake_to
        run_at(board, i)


@jit_inner
def reload(board: Board) -> None:
    """Drivers are loaded anew and have forgotten what was set."""
    row = board.row[0]
    for i in range(len(board.servers)):
        server = board.servers[i]
        if strikes(row, row.reloaded_share, row.reloaded_s, inf):
            server.epoch, row.changes = server.epoch + 1, row.changes + 1
            server.token_lock = server.prompt_lock = 1.0
            run_at(board, i)
    row.reloaded_s = inf
