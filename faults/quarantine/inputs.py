"""What the policy is told: the fleet as it is, who is accused of what, what probes found, what operators want."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from faults.diagnosis import FaultClass, Scope, Verdict

SLOW = frozenset((FaultClass.COMM_SLOW, FaultClass.NONCOMM_SLOW))
TRAFFIC = frozenset((FaultClass.COMM_SLOW, FaultClass.COMM_HANG))
NODES = frozenset((Scope.NODE, Scope.RANK))


class Member(NamedTuple):
    """A node of the fleet."""

    pool: str
    domains: tuple[str, ...] = ()  # whatever fails as one: rack, leaf, power domain
    absent: bool = False  # takes no work for a reason that is not ours


class Accusation(NamedTuple):
    """A verdict that is believed now, against a node by name."""

    id: str  # of the bundle that proves it
    node: str
    verdict: Verdict


class ProbeResult(NamedTuple):
    """How a probe ended.  One that ended before it was wanted says nothing: it counts once."""

    at_s: float
    passed: bool


class Wish(StrEnum):
    """What an operator can say of a node."""

    APPROVE = "approve"
    DECLINE = "decline"
    RELEASE = "release"
    KEEP_OUT = "keep-out"


class Inputs(NamedTuple):
    """Everything one step looks at.  Given again at the same moment, nothing more happens, but for operators' words."""

    now_s: float
    members: Mapping[str, Member]
    accusations: tuple[Accusation, ...] = ()
    network: frozenset[str] = frozenset()  # failure domains under a leaf or uplink verdict now
    spares: Mapping[str, int] = MappingProxyType({})  # per pool: nodes that could take over, counted now
    probed: Mapping[str, ProbeResult] = MappingProxyType({})  # per node: the last probe
    wishes: Mapping[str, Wish] = MappingProxyType({})
    close_breaker: bool = False
