"""The events of a job: faults that should be diagnosed, and look-alikes that should not.

`at` is an index of the component that the kind names: a NIC, a node, a leaf, an uplink, a replica.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from faults.fabric import NOWHERE


class FaultKind(StrEnum):
    """The kinds of the public mix, then the look-alikes."""

    CRASH = "crash"  # node: its processes and sockets are gone
    HANG_CODE = "hang-code"  # node: one of its ranks never calls the next collective
    HANG_NODE = "hang-node"  # node: loses all packets
    HANG_LINK = "hang-link"  # NIC to NIC, one direction: loses all packets
    SLOW_TX = "slow-tx"  # NIC
    SLOW_RX = "slow-rx"  # NIC
    SLOW_NIC = "slow-nic"  # NIC, both directions
    SLOW_NODE = "slow-node"  # all NICs of a node, both directions
    SLOW_LINK = "slow-link"  # NIC to NIC, one direction
    STRAGGLER = "straggler"  # node: computes longer
    LEAF = "leaf"  # all traffic through a leaf switch
    UPLINK = "uplink"  # one cable of a leaf, one direction
    PAUSE = "pause"  # all nodes: no traffic during a checkpoint or an evaluation
    CHECKPOINT = "checkpoint"  # the first replica: its checkpoint shares the NICs of its first rail
    FOREIGN = "foreign"  # NIC to NIC: traffic of another job shares both
    IMBALANCE = "imbalance"  # replica: more data to compute, on all its nodes
    HICCUP = "hiccup"  # node: all its NICs, for a few seconds
    SILENCE = "silence"  # pod: all its agents are silent, the job is healthy


NICS = frozenset({FaultKind.SLOW_TX, FaultKind.SLOW_RX, FaultKind.SLOW_NIC})
LINKS = frozenset({FaultKind.SLOW_LINK, FaultKind.HANG_LINK})
SLOW = NICS | {FaultKind.SLOW_NODE, FaultKind.SLOW_LINK, FaultKind.LEAF, FaultKind.UPLINK}
HANGS = frozenset({FaultKind.CRASH, FaultKind.HANG_CODE, FaultKind.HANG_NODE, FaultKind.HANG_LINK})
FAULTS = SLOW | HANGS | {FaultKind.STRAGGLER}


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One event.  A factor of 1.25 means that bytes, or computing, take 1.25 times as long."""

    kind: FaultKind
    at: int
    from_s: float
    to_s: float
    factor: float = 1.0
    to: int = NOWHERE  # the NIC at the other end, if the kind has one

    def share(self, from_s: float, to_s: float) -> float:
        return max(0.0, min(to_s, self.to_s) - max(from_s, self.from_s)) / (to_s - from_s)


def takes_machine(one: FaultEvent) -> bool:
    """Return whether a crash also stops its machine and agent: every second one does."""
    return one.kind is FaultKind.CRASH and int(one.from_s * 1000) % 2 == 1


class FaultSchedule:
    """Events by start time, for windows in order."""

    def __init__(self, events: Iterable[FaultEvent]) -> None:
        self._coming = sorted(events, key=lambda one: one.from_s, reverse=True)
        self._lasting: list[FaultEvent] = []

    def during(self, from_s: float, to_s: float) -> Sequence[FaultEvent]:
        while self._coming and self._coming[-1].from_s < to_s:
            self._lasting.append(self._coming.pop())
        if self._lasting:
            self._lasting = [one for one in self._lasting if one.to_s > from_s]
        return self._lasting
