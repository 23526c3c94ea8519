"""The observable effect of a cut at the senders: bytes without acknowledgement."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Ints
from faults.simulator.fault_schedule import FaultEvent, FaultKind

_CUT_KNOWN_S = 0.7  # Linux retransmits after at least 0.2 and 0.6 s: two failed retransmissions


@dataclass(frozen=True, slots=True)
class Cut:
    from_s: float
    vain: Ints  # edges whose bytes are not acknowledged
    arrived: NDArray[np.bool_]  # per such edge: the bytes arrive, their acknowledgements do not


def cuts(fabric: Fabric, events: tuple[FaultEvent, ...]) -> tuple[Cut, ...]:
    """Return the cuts of all events that cut a node or a link."""
    return tuple(_cut(fabric, one) for one in events if one.what in (FaultKind.HANG_NODE, FaultKind.HANG_LINK))


def _cut(fabric: Fabric, one: FaultEvent) -> Cut:
    if one.what is FaultKind.HANG_NODE:
        nics = np.flatnonzero(fabric.node == one.at)
        vain = np.flatnonzero(np.isin(fabric.source, nics) ^ np.isin(fabric.target, nics))
        return Cut(one.from_s, vain, np.zeros(vain.size, dtype=bool))
    forth = (fabric.source == one.at) & (fabric.target == one.to)
    back = (fabric.source == one.to) & (fabric.target == one.at)  # its acknowledgements take the dead direction
    vain = np.flatnonzero(forth | back)
    return Cut(one.from_s, vain, back[vain])


def in_vain(
    of_now: tuple[Cut, ...], fabric: Fabric, at_s: float, reported: NDArray[np.bool_]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return (edges, whether the receiver's counter shows the bytes), as reporting agents observe them."""
    known = [cut for cut in of_now if at_s >= cut.from_s + _CUT_KNOWN_S]
    if not known:
        return np.empty(0, np.int64), np.empty(0, dtype=bool)
    vain = np.concatenate([cut.vain for cut in known])
    came = np.concatenate([cut.arrived for cut in known]) & reported[fabric.node[fabric.target[vain]]]
    told = reported[fabric.node[fabric.source[vain]]]
    return vain[told], came[told]
