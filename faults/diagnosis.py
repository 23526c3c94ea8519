"""What is wrong, where, since when, how sure, and why.  docs/faults/index.md"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from fleet.documents import Frozen

SILENCE: Final = "silence"  # the evidence that nothing is heard: it never isolates alone


class FaultClass(StrEnum):
    """C4's four classes (arXiv 2406.04594) and the crash."""

    COMM_HANG = "comm-hang"  # all came, nobody gets through
    NONCOMM_HANG = "noncomm-hang"  # somebody never came
    COMM_SLOW = "comm-slow"  # bytes take longer on their way
    NONCOMM_SLOW = "noncomm-slow"  # somebody comes late, its bytes do not
    CRASH = "crash"


class Scope(StrEnum):
    """What has to be mended."""

    RANK = "rank"  # the process
    NODE = "node"  # the machine or its NIC; the direction says whether only one way
    LINK = "link"  # between two nodes, one way or both
    LEAF = "leaf"
    UPLINK = "uplink"
    WORKLOAD = "workload"  # not hardware: data imbalance, checkpoint, garbage collection, foreign traffic


class Direction(StrEnum):
    """Which way is slow or cut."""

    TX = "tx"  # of a node's NIC: what it sends
    RX = "rx"
    BOTH = "both"
    FORWARD = "forward"  # of a link: from `node` to `peer`


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Diagnosis(Frozen):
    """One fault.  Times are seconds on the clock of the one who asked (a recording's: after its t_go)."""

    fault: FaultClass
    scope: Scope
    node: int | None = None
    peer: int | None = None
    switch: str | None = None  # of a leaf or an uplink
    direction: Direction | None = None
    onset_s: float
    detected_s: float
    isolate: bool  # whether the evidence would justify taking the node out; whether it is, the policy says
    confidence: Share
    reason: str
    evidence: tuple[str, ...] = ()  # the kinds it rests on; silence alone never isolates
