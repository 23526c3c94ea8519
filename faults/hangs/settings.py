"""The limits of the hang detector.  Each follows a time of the kernel or of the job."""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(ge=1e-3, le=86_400.0)]
Times = Annotated[float, Field(ge=1.0, le=1_000.0)]
Samples = Annotated[int, Field(ge=2, le=1_000)]


class HangSettings(Frozen):
    """Limits per kind of evidence."""

    # A step of up to four times the usual time is slow, not stalled.
    still_steps: Times = 4.0
    # Linux retransmits after at least 0.2, 0.6 and 1.4 s: two failed retransmissions are no single lost packet.
    cut_s: Seconds = 0.7
    cut_backoff: Annotated[int, Field(ge=1, le=15)] = 2
    cut_still_s: Seconds = 1.0
    # One second at 4 Hz: a busy machine can delay single samples.
    looks: Samples = 3
    # A frozen process sends no heartbeats while its node's agent keeps sampling.
    frozen_beats: Times = 3.0
    frozen_gap: Times = 1.5  # times the longest recent gap between its heartbeats
    frozen_s: Seconds = 1.0
    # Unread bytes with heartbeats: the communication thread can lack a core for so long.
    # Measured on 2 cores at load 15: 2.45 s.
    unread_s: Seconds = 5.0
    # A rank in its own code can be late for seconds without being stuck.
    own_code_s: Seconds = 2.0
    own_code_late: Times = 2.0  # times the largest recent delay of a rank
    own_code_beats: Samples = 3
    own_code_isolate_s: Seconds = 6.0
    # All ranks entered, none finished, no evidence on the wire: diagnosed without a place.
    nowhere_s: Seconds = 10.0
    # Step time while none is measured.
    step_s: Seconds = 0.25
    # An agent without a sample for so many periods is not evidence.
    stale_looks: Times = 20.0
