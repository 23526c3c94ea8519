"""The inputs of one evaluation: members of the fleet, suspicions, probe results and operator actions."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from faults.diagnosis import Diagnosis, FaultClass, Scope

SLOW = frozenset((FaultClass.COMM_SLOW, FaultClass.NONCOMM_SLOW))
TRAFFIC = frozenset((FaultClass.COMM_SLOW, FaultClass.COMM_HANG))
NODES = frozenset((Scope.NODE, Scope.RANK))


class Member(NamedTuple):
    pool: str
    domains: tuple[str, ...] = ()  # failure domains: rack, leaf, power domain
    absent: bool = False  # out of service for another reason


class Suspicion(NamedTuple):
    id: str  # of the diagnosis
    node: str
    diagnosis: Diagnosis


class ProbeResult(NamedTuple):
    """Result of a probe.  The policy ignores a probe that ended before it was requested."""

    at_s: float
    passed: bool


class OperatorAction(StrEnum):
    """Action that an operator requests for a node."""

    APPROVE = "approve"
    DECLINE = "decline"
    RELEASE = "release"
    CORDON = "cordon"


class Inputs(NamedTuple):
    """All inputs of one step.  Equal inputs at the same time change nothing, except for operator actions."""

    now_s: float
    members: Mapping[str, Member]
    suspicions: tuple[Suspicion, ...] = ()
    network: frozenset[str] = frozenset()  # failure domains with an active leaf or uplink diagnosis
    spares: Mapping[str, int] = MappingProxyType({})  # per pool: free replacement nodes
    probe_results: Mapping[str, ProbeResult] = MappingProxyType({})  # last probe per node
    operator_actions: Mapping[str, OperatorAction] = MappingProxyType({})
    reset_breaker: bool = False
