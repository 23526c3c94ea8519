"""When a standstill counts as a hang.  Each limit is a time of the kernel or of the job, with its reason."""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(ge=1e-3, le=86_400.0)]
Times = Annotated[float, Field(ge=1.0, le=1_000.0)]
Looks = Annotated[int, Field(ge=2, le=1_000)]


class HangSettings(Frozen):
    """Patience, per kind of evidence."""

    # A step that takes four times as long as usual is slow, which is not judged here.
    still_steps: Times = 4.0
    # Linux retransmits after 0.2, 0.6 and 1.4 s at the least: twice in vain is no lost packet.
    cut_s: Seconds = 0.7
    cut_backoff: Annotated[int, Field(ge=1, le=15)] = 2
    cut_still_s: Seconds = 1.0
    # Four looks at 4 Hz: what a busy machine shows of one moment is not taken for a second.
    looks: Looks = 3
    # A frozen process misses heartbeats while its node's agent goes on looking.
    frozen_beats: Times = 3.0
    frozen_gap: Times = 1.5  # times the longest gap between its heartbeats of late
    frozen_s: Seconds = 1.0
    # Nobody reads though the process beats: its communication thread may be starved of a core for that long.
    # Measured on 2 cores at load 15: 2.45 s.
    unread_s: Seconds = 5.0
    # In its own code: a rank may be late for seconds without being stuck.
    own_code_s: Seconds = 2.0
    own_code_late: Times = 2.0  # times the latest that a rank has come of late
    own_code_beats: Looks = 3
    own_code_isolate_s: Seconds = 6.0
    # Everybody came, nothing is wrong on the wire, nobody gets through: named without a place.
    nowhere_s: Seconds = 10.0
    # Without evidence of steps.
    step_s: Seconds = 0.25
    # An agent that has not looked for so many periods says nothing.
    stale_looks: Times = 20.0
