"""Who talks to whom over what: the edges of traffic, and everything that can slow each of them.

An edge is one direction between two NICs in one kind of traffic.  Its log slowdown in a window is the sum of what its
explanations add: the link itself, the sender's Tx, the receiver's Rx, both NICs, both nodes, both leaves, the uplinks.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NOWHERE = -1


class Traffic(IntEnum):
    """Kinds of traffic differ in noise."""

    RING = 0
    TREE = 1
    SMALL = 2  # pipeline, expert all-to-all: messages too short to fill a link


class Explains(IntEnum):
    """What an entity of the joint fit is."""

    LINK = 0  # one pair of NICs, one way
    TX = 1
    RX = 2
    NIC = 3
    NODE = 4
    LEAF = 5
    UPLINK = 6  # one leaf-spine cable, one way


@dataclass(frozen=True, slots=True)
class Fabric:
    """Edges by index, and what lies on their way.  NOWHERE: not on any, or not known."""

    source: Ints  # NIC per edge
    target: Ints
    traffic: Ints  # Traffic per edge
    up: Ints  # uplink from the source's leaf to the spine, per edge
    down: Ints  # from the spine to the target's leaf
    node: Ints  # per NIC
    leaf: Ints  # per NIC

    def __len__(self) -> int:
        return int(self.source.size)


@dataclass(frozen=True, slots=True)
class Window:
    """What all edges said of one stretch of time."""

    from_s: float
    to_s: float
    slowdown: Floats  # per edge: log of (usual bandwidth / bandwidth now); NaN: not heard
    foreign: NDArray[np.bool_] | None = None  # per edge: extra connections were seen beside the job's
    probed: Floats | None = None  # per edge: log of (peers' one-way rate / its own), by probes over paths of their own
