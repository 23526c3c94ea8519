"""A diagnosis: fault class, place, onset, confidence and reason.  docs/explanation/faults/index.md"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from fleet.documents import Frozen

SILENCE: Final = "silence"  # evidence kind: no message.  Silence alone never justifies a quarantine


class FaultClass(StrEnum):
    """The four classes of C4 (arXiv 2406.04594), and the crash."""

    COMM_HANG = "comm-hang"  # all ranks entered the collective, none finished
    NONCOMM_HANG = "noncomm-hang"  # a rank never entered the collective
    COMM_SLOW = "comm-slow"  # the network is slow
    NONCOMM_SLOW = "noncomm-slow"  # a rank enters late
    CRASH = "crash"


class Scope(StrEnum):
    """The component to repair."""

    RANK = "rank"  # the process
    NODE = "node"  # the machine or its NIC, in both directions or one
    LINK = "link"  # between two nodes, one way or both
    LEAF = "leaf"
    UPLINK = "uplink"
    WORKLOAD = "workload"  # no hardware: data imbalance, checkpoint, garbage collection, cross traffic


class Direction(StrEnum):
    """The slow or cut direction."""

    TX = "tx"  # of a node's NIC: outgoing
    RX = "rx"
    BOTH = "both"
    FORWARD = "forward"  # of a link: from `node` to `peer`


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Diagnosis(Frozen):
    """One fault.  Times are seconds on the clock of the caller (of a recording: after its t_go)."""

    fault: FaultClass
    scope: Scope
    node: int | None = None
    rank: int | None = None  # the process, of a rank
    peer: int | None = None
    switch: str | None = None  # of a leaf or an uplink
    direction: Direction | None = None
    onset_s: float
    detected_s: float
    isolate: bool  # whether the evidence justifies a quarantine; the quarantine policy decides
    confidence: Share
    reason: str
    evidence: tuple[str, ...] = ()  # kinds of evidence
