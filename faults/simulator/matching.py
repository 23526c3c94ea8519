"""Whether a diagnosis matches an event: class and component.  The direction is compared separately."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric
from faults.simulator.fault_schedule import FaultEvent, FaultKind

CLASS: Mapping[FaultKind, FaultClass] = MappingProxyType(
    {
        FaultKind.CRASH: FaultClass.CRASH,
        FaultKind.HANG_CODE: FaultClass.NONCOMM_HANG,
        FaultKind.HANG_NODE: FaultClass.COMM_HANG,
        FaultKind.HANG_LINK: FaultClass.COMM_HANG,
        FaultKind.SLOW_TX: FaultClass.COMM_SLOW,
        FaultKind.SLOW_RX: FaultClass.COMM_SLOW,
        FaultKind.SLOW_NIC: FaultClass.COMM_SLOW,
        FaultKind.SLOW_NODE: FaultClass.COMM_SLOW,
        FaultKind.SLOW_LINK: FaultClass.COMM_SLOW,
        FaultKind.STRAGGLER: FaultClass.NONCOMM_SLOW,
        FaultKind.LEAF: FaultClass.COMM_SLOW,
        FaultKind.UPLINK: FaultClass.COMM_SLOW,
    }
)
DIRECTION: Mapping[FaultKind, Direction] = MappingProxyType(
    {
        FaultKind.SLOW_TX: Direction.TX,
        FaultKind.SLOW_RX: Direction.RX,
        FaultKind.SLOW_NIC: Direction.BOTH,
        FaultKind.SLOW_NODE: Direction.BOTH,
        FaultKind.HANG_NODE: Direction.BOTH,
    }
)
DIRECTED = frozenset(DIRECTION) | {FaultKind.SLOW_LINK, FaultKind.HANG_LINK}
_NIC = frozenset({FaultKind.SLOW_TX, FaultKind.SLOW_RX, FaultKind.SLOW_NIC})
_LINK = frozenset({FaultKind.SLOW_LINK, FaultKind.HANG_LINK})
_NODE = frozenset({FaultKind.CRASH, FaultKind.HANG_CODE, FaultKind.HANG_NODE, FaultKind.SLOW_NODE, FaultKind.STRAGGLER})


def names(diagnosis: Diagnosis, one: FaultEvent, fabric: Fabric) -> bool:
    """Return whether the class and the node, pair of nodes, leaf or uplink are right."""
    if diagnosis.fault != CLASS.get(one.what):
        return False
    if one.what in _LINK:
        ends = {int(fabric.node[one.at]), int(fabric.node[one.to])}
        return diagnosis.scope is Scope.LINK and {diagnosis.node, diagnosis.peer} == ends
    if one.what is FaultKind.LEAF:
        return diagnosis.scope is Scope.LEAF and diagnosis.switch == f"leaf-{one.at}"
    if one.what is FaultKind.UPLINK:
        if diagnosis.scope is Scope.LINK:
            return _pairs_on(one.at, fabric) == {frozenset((diagnosis.node, diagnosis.peer))}
        return diagnosis.scope is Scope.UPLINK and diagnosis.switch == f"uplink-{one.at}"
    return diagnosis.scope in (Scope.NODE, Scope.RANK) and diagnosis.node == faulty_node(one, fabric)


def _pairs_on(uplink: int, fabric: Fabric) -> set[frozenset[int | None]]:
    """Return the pairs of nodes over a cable: with one pair only, the cable and the link are indistinguishable."""
    edges = np.flatnonzero((fabric.up == uplink) | (fabric.down == uplink))
    ends = zip(fabric.node[fabric.source[edges]].tolist(), fabric.node[fabric.target[edges]].tolist(), strict=True)
    return {frozenset(pair) for pair in ends}


def faulty_node(one: FaultEvent, fabric: Fabric) -> int | None:
    """Return the node that may be isolated for the event; None for links, switches and look-alikes."""
    if one.what in _NIC:
        return int(fabric.node[one.at])
    return one.at if one.what in _NODE else None


def right_way(diagnosis: Diagnosis, one: FaultEvent, fabric: Fabric) -> bool:
    """Return whether a matching diagnosis has the right direction."""
    if one.what in _LINK:
        return diagnosis.node == int(fabric.node[one.at]) and diagnosis.direction in (Direction.FORWARD, None)
    return diagnosis.direction == DIRECTION.get(one.what)
