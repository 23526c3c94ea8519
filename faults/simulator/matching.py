"""Whether a verdict names what happens: class and entity.  The direction is asked for apart."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric
from faults.simulator.fault_schedule import Happening, What

CLASS: Mapping[What, FaultClass] = MappingProxyType(
    {
        What.CRASH: FaultClass.CRASH,
        What.HANG_CODE: FaultClass.NONCOMM_HANG,
        What.HANG_NODE: FaultClass.COMM_HANG,
        What.HANG_LINK: FaultClass.COMM_HANG,
        What.SLOW_TX: FaultClass.COMM_SLOW,
        What.SLOW_RX: FaultClass.COMM_SLOW,
        What.SLOW_NIC: FaultClass.COMM_SLOW,
        What.SLOW_NODE: FaultClass.COMM_SLOW,
        What.SLOW_LINK: FaultClass.COMM_SLOW,
        What.STRAGGLER: FaultClass.NONCOMM_SLOW,
        What.LEAF: FaultClass.COMM_SLOW,
        What.UPLINK: FaultClass.COMM_SLOW,
    }
)
DIRECTION: Mapping[What, Direction] = MappingProxyType(
    {
        What.SLOW_TX: Direction.TX,
        What.SLOW_RX: Direction.RX,
        What.SLOW_NIC: Direction.BOTH,
        What.SLOW_NODE: Direction.BOTH,
        What.HANG_NODE: Direction.BOTH,
    }
)
DIRECTED = frozenset(DIRECTION) | {What.SLOW_LINK, What.HANG_LINK}
_NIC = frozenset({What.SLOW_TX, What.SLOW_RX, What.SLOW_NIC})
_LINK = frozenset({What.SLOW_LINK, What.HANG_LINK})
_NODE = frozenset({What.CRASH, What.HANG_CODE, What.HANG_NODE, What.SLOW_NODE, What.STRAGGLER})


def names(diagnosis: Diagnosis, one: Happening, fabric: Fabric) -> bool:
    """The right class, and the right node, pair of nodes, leaf or uplink."""
    if diagnosis.fault != CLASS.get(one.what):
        return False
    if one.what in _LINK:
        ends = {int(fabric.node[one.at]), int(fabric.node[one.to])}
        return diagnosis.scope is Scope.LINK and {diagnosis.node, diagnosis.peer} == ends
    if one.what is What.LEAF:
        return diagnosis.scope is Scope.LEAF and diagnosis.switch == f"leaf-{one.at}"
    if one.what is What.UPLINK:
        if diagnosis.scope is Scope.LINK:
            return _pairs_on(one.at, fabric) == {frozenset((diagnosis.node, diagnosis.peer))}
        return diagnosis.scope is Scope.UPLINK and diagnosis.switch == f"uplink-{one.at}"
    return diagnosis.scope in (Scope.NODE, Scope.RANK) and diagnosis.node == faulty_node(one, fabric)


def _pairs_on(uplink: int, fabric: Fabric) -> set[frozenset[int | None]]:
    """Pairs of nodes that talk over a cable: where there is but one, the cable and their link are the same to all."""
    edges = np.flatnonzero((fabric.up == uplink) | (fabric.down == uplink))
    ends = zip(fabric.node[fabric.source[edges]].tolist(), fabric.node[fabric.target[edges]].tolist(), strict=True)
    return {frozenset(pair) for pair in ends}


def faulty_node(one: Happening, fabric: Fabric) -> int | None:
    """The node that may be taken out for it; none for links, switches and what is no fault."""
    if one.what in _NIC:
        return int(fabric.node[one.at])
    return one.at if one.what in _NODE else None


def right_way(diagnosis: Diagnosis, one: Happening, fabric: Fabric) -> bool:
    """The direction of a verdict that names it."""
    if one.what in _LINK:
        return diagnosis.node == int(fabric.node[one.at]) and diagnosis.direction in (Direction.FORWARD, None)
    return diagnosis.direction == DIRECTION.get(one.what)
