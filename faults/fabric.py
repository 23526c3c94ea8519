"""The traffic edges of a job, and everything that can slow each of them.

An edge is one direction between two NICs in one kind of traffic.  Its log slowdown in a window is the sum over its
entities: the link itself, the sender's Tx, the receiver's Rx, both NICs, both nodes, both leaves, the uplinks.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NOWHERE = -1


class Traffic(IntEnum):
    """Kinds of traffic; they differ in noise."""

    RING = 0
    TREE = 1
    SMALL = 2  # pipeline, expert all-to-all: messages too short to fill a link


@dataclass(frozen=True, slots=True)
class Fabric:
    """Edges by index, and the entities on their path.  NOWHERE: none, or unknown."""

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
    from_s: float
    to_s: float
    slowdown: Floats  # per edge: log of (usual bandwidth / bandwidth now); NaN: no data
    foreign: NDArray[np.bool_] | None = None  # per edge: whether there were connections of other jobs
    probed: Floats | None = None  # per edge: log of (peers' one-way rate / its own), from probes on separate paths
