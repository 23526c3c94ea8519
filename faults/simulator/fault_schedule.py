"""What happens to a job and when: faults that should be named, and what looks like them and should not.

`at` is an index of what the kind names: a NIC, a node, a leaf, an uplink, a replica.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from faults.fabric import NOWHERE


class FaultKind(StrEnum):
    """The public mix's classes first, then the negatives."""

    CRASH = "crash"  # node: its processes are gone, its sockets too
    HANG_CODE = "hang-code"  # node: one rank of it never calls the next collective
    HANG_NODE = "hang-node"  # node: nothing comes in or out
    HANG_LINK = "hang-link"  # NIC to NIC, one way: nothing gets through
    SLOW_TX = "slow-tx"  # NIC
    SLOW_RX = "slow-rx"  # NIC
    SLOW_NIC = "slow-nic"  # NIC, both ways
    SLOW_NODE = "slow-node"  # all NICs of a node, both ways
    SLOW_LINK = "slow-link"  # NIC to NIC, one way
    STRAGGLER = "straggler"  # node: computes longer
    LEAF = "leaf"  # all through a leaf switch
    UPLINK = "uplink"  # one cable of a leaf, one way, for as long as a fault lasts
    PAUSE = "pause"  # all: nobody talks, while state is copied or the model is tested
    CHECKPOINT = "checkpoint"  # the first replica: what it writes shares the NICs of its first rail
    FOREIGN = "foreign"  # NIC to NIC: somebody else's traffic shares both
    IMBALANCE = "imbalance"  # replica: it has more to compute, on all its nodes
    HICCUP = "hiccup"  # node: all its NICs, for a few seconds
    SILENCE = "silence"  # pod: none of its agents is heard, the job is well


SLOW = frozenset(
    {
        FaultKind.SLOW_TX,
        FaultKind.SLOW_RX,
        FaultKind.SLOW_NIC,
        FaultKind.SLOW_NODE,
        FaultKind.SLOW_LINK,
        FaultKind.LEAF,
        FaultKind.UPLINK,
    }
)
HANGS = frozenset({FaultKind.CRASH, FaultKind.HANG_CODE, FaultKind.HANG_NODE, FaultKind.HANG_LINK})
FAULTS = SLOW | HANGS | {FaultKind.STRAGGLER}


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One of them.  A factor of 1.25 means that bytes, or computing, take 1.25 times as long."""

    what: FaultKind
    at: int
    from_s: float
    to_s: float
    factor: float = 1.0
    to: int = NOWHERE  # the NIC at the other end, where the kind has one

    def share(self, from_s: float, to_s: float) -> float:
        """Of a window, the part in which this lasts."""
        return max(0.0, min(to_s, self.to_s) - max(from_s, self.from_s)) / (to_s - from_s)


def takes_machine(one: FaultEvent) -> bool:
    """Every second crash takes its machine along, and the agent with it."""
    return one.what is FaultKind.CRASH and int(one.from_s * 1000) % 2 == 1


class FaultSchedule:
    """Happenings in order of their beginnings, handed out by window.  Windows must be asked for in order."""

    def __init__(self, events: Iterable[FaultEvent]) -> None:
        self._coming = sorted(events, key=lambda one: one.from_s, reverse=True)
        self._lasting: list[FaultEvent] = []

    def during(self, from_s: float, to_s: float) -> Sequence[FaultEvent]:
        """All that last at any time from `from_s` to `to_s`."""
        while self._coming and self._coming[-1].from_s < to_s:
            self._lasting.append(self._coming.pop())
        if self._lasting:
            self._lasting = [one for one in self._lasting if one.to_s > from_s]
        return self._lasting
