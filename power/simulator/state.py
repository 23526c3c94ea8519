"""The state shared by Python and the compiled engine: plain records, and the tuple of all of them.

Every array has one record per thing; the row itself is a single record.  Servers of a pool are contiguous, in the order
of the pools; servers of training jobs follow.  Requests of a pool are contiguous, in the order of arrival, so that a
queue is a range.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from power.arrays import Floats

Records: TypeAlias = npt.NDArray[np.void]
Record: TypeAlias = Any  # one of them: its fields are attributes inside the engine

NO_INDEX = -1
WINDOW_S = 2.0  # of the meter
WAKING = 5  # a phase of the engine only: draws as if idle, takes nothing yet

_F, _I = np.float64, np.int64

KIND = np.dtype(
    [  # a `ServerModel` at the plug
        *((name, _F) for name in ("idle_w", "parked_w", "prompt_floor_w", "prompt_rise_w", "prompt_exponent")),
        *((name, _F) for name in ("token_floor_w", "token_rise_w", "token_exponent", "batch_exponent")),
        *((name, _F) for name in ("prompt_s0", "prompt_s1", "prompt_s2", "prompt_sensitivity")),
        *((name, _F) for name in ("token_s", "batch_growth", "token_sensitivity", "token_floor_time")),
        *((name, _F) for name in ("wake_s", "brake_clock")),
        ("most_together", _I),  # requests that its memory and the row's limit allow
    ]
)

SERVER = np.dtype(
    [
        ("kind", _I),
        ("pool", _I),  # NO_INDEX: it trains
        ("job", _I),  # NO_INDEX: it serves
        ("priority", _I),
        ("bias", _F),  # its watts over its kind's
        ("phase", _I),
        ("together", _I),  # requests past their prompt
        ("reads", _I),  # the request with its prompt in progress
        ("left_s", _F),  # of that prompt, or of waking, at full clock
        ("written", _F),  # tokens that each request here has got since the server was last idle
        ("nearest", _F),  # the least mark in its slots
        ("rate", _F),  # of `left_s` or `written`, per second
        ("since_s", _F),  # when those were last brought up to date
        ("works_s", _F),  # when its work changes next
        ("watts", _F),
        ("modelled_w", _F),  # by the nominal model
        ("token_clock", _F),  # that it runs at
        ("prompt_clock", _F),
        ("token_lock", _F),  # set and in force, but for the brake
        ("prompt_lock", _F),
        ("token_sent", _F),  # the last command
        ("prompt_sent", _F),
        ("token_wanted", _F),  # clocks to send once no command is in flight
        ("prompt_wanted", _F),
        ("due_s", _F),  # when the command in flight takes effect
        ("commanded", _I),  # send the wanted clocks, even if they were sent before
        ("brake_due_s", _F),  # when the brake takes effect or releases
        ("brake_to", _I),
        ("braked", _I),
        ("epoch", _I),  # loads of its driver
    ]
)

SLOT = np.dtype([("request", _I), ("mark", _F)])  # done when the server has `written` so much

REQUEST = np.dtype(
    [
        ("arrival_s", _F),
        ("prompt_tokens", _F),
        ("output_tokens", _F),
        ("held_since_s", _F),  # when only watts kept it from starting; NaN: never
        ("start_s", _F),  # of its prompt; NaN: not yet
        ("first_s", _F),  # its prompt was read
        ("finish_s", _F),
        ("server", _I),
    ]
)

POOL = np.dtype(
    [
        ("first", _I),  # server
        ("servers", _I),
        ("priority", _I),
        ("head", _I),  # the request that waits longest
        ("arriving", _I),  # the next to arrive
        ("end", _I),
        ("arrives_s", _F),
        ("asleep", _I),  # servers parked
    ]
)

JOB = np.dtype(
    [
        ("first", _I),
        ("servers", _I),
        ("compute_s", _F),
        ("exchange_s", _F),
        ("compute_w", _F),
        ("trough_w", _F),
        ("exponent", _F),
        ("start_s", _F),
        ("stage", _I),  # 0 not begun, 1 computes, 2 exchanges
        ("left_s", _F),
        ("rate", _F),
        ("since_s", _F),
        ("next_s", _F),
        ("swing_w", _F),  # power that computing would add
        ("iterations", _I),
    ]
)

ROW = np.dtype(
    [
        ("now_s", _F),
        ("ticks", _I),  # windows closed
        ("row_w", _F),
        ("modelled_w", _F),
        ("swing_w", _F),  # modelled power that training may add at any moment
        ("window_j", _F),
        ("window_modelled_j", _F),
        ("energy_j", _F),
        ("busy", _I),
        ("busy_server_s", _F),
        ("ratio", _F),  # of the meter to the model
        ("smoothing", _F),
        ("delay_windows", _I),
        ("reading_index", _I),  # the newest reading delivered; NO_INDEX: none
        ("reading_w", _F),
        # commands
        ("has_commands", _I),  # some servers were commanded, or braked
        *((name, _F) for name in ("low_token", "high_token", "low_prompt", "high_prompt", "training")),
        ("low_limit_w", _F),
        ("high_limit_w", _F),
        ("low_together", _I),
        ("high_together", _I),
        ("parked_share", _F),
        ("patience_s", _F),  # a request that waited longer gets the limit of high priority
        ("command_delay_s", _F),
        # faults
        *((name, _F) for name in ("stale_from_s", "stale_to_s", "missing_share", "missing_from_s", "missing_to_s")),
        *((name, _F) for name in ("meter_factor", "meter_from_s", "meter_to_s")),
        *((name, _F) for name in ("ignored_share", "ignored_from_s", "ignored_to_s")),
        *((name, _F) for name in ("late_share", "late_s", "late_from_s", "late_to_s")),
        ("reloaded_share", _F),
        ("reloaded_s", _F),
        ("random", np.uint64),
        ("commands", _I),  # commands that took effect
        ("ignored", _I),
        ("changes", _I),  # of locks and brakes
    ]
)


class RowState(NamedTuple):
    servers: Records
    slots: Records  # [server, request]
    requests: Records
    pools: Records
    jobs: Records
    kinds: Records  # [model, 0 true or 1 nominal]
    row: Records  # one
    counts: Floats  # [kind, priority, phase]
    tree: Floats  # least times over pairs of servers, from the root at 1
    readings: Floats  # true mean of each window, watts
    modelled: Floats  # the same of the model
