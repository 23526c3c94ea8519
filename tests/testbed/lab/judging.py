"""Compares the diagnoses of a run with its injected fault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Kind
from tests.testbed.lab.watching import Stamped
from tests.testbed.lab.workload import Inside

CLASS_OF: Final[Mapping[Kind | Inside, FaultClass]] = {
    "link": FaultClass.COMM_SLOW,
    "tx": FaultClass.COMM_SLOW,
    "rx": FaultClass.COMM_SLOW,
    "pair_cut": FaultClass.COMM_HANG,
    "node_cut": FaultClass.COMM_HANG,
    "stop": FaultClass.NONCOMM_HANG,
    "hang": FaultClass.NONCOMM_HANG,
    "kill": FaultClass.CRASH,
    "delay": FaultClass.NONCOMM_SLOW,
}  # all others are no faults: cross traffic, imbalance, a pause
DIRECTION_OF: Final[Mapping[Kind | Inside, Direction]] = {
    "tx": Direction.TX,
    "rx": Direction.RX,
    "link": Direction.FORWARD,
    "pair_cut": Direction.FORWARD,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """Describes the one fault of a run."""

    fault: FaultClass
    node: int
    peer: int | None
    direction: Direction | None
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Holds the result.  `detect_s` is None where the fault was not found, or there was none."""

    class_right: bool
    place_right: bool
    direction_right: bool
    detect_s: float | None
    wrong_isolations: int
    wrong_diagnoses: int  # of hardware, with or without isolation


def expected_of(experiment: Experiment) -> Expected | None:
    """Return the fault that must be diagnosed; None: no diagnosis is correct."""
    for what in experiment.injections:
        if what.kind in CLASS_OF:
            return Expected(CLASS_OF[what.kind], what.node, what.peer, DIRECTION_OF.get(what.kind), what.at_s)
    for inner in experiment.workload.inner:
        if inner.what in CLASS_OF and inner.rank is not None:
            return Expected(CLASS_OF[inner.what], inner.rank, None, None, inner.at_s)
    return None


def judge(expected: Expected | None, diagnoses: Sequence[Stamped], *, began_s: float | None = None) -> Outcome:
    """Compare the diagnoses with the fault.  `began_s` is its measured start, if any."""
    hardware = [stamped for stamped in diagnoses if stamped.diagnosis.scope is not Scope.WORKLOAD]
    if expected is None:
        return Outcome(
            class_right=not hardware,
            place_right=not hardware,
            direction_right=not hardware,
            detect_s=None,
            wrong_isolations=sum(stamped.diagnosis.isolate for stamped in hardware),
            wrong_diagnoses=len(hardware),
        )
    placed = [stamped for stamped in hardware if _place_is_right(expected, stamped.diagnosis)]
    right = next((stamped for stamped in placed if stamped.diagnosis.fault is expected.fault), None)
    onset_s = expected.at_s if began_s is None else began_s
    return Outcome(
        class_right=any(stamped.diagnosis.fault is expected.fault for stamped in hardware),
        place_right=bool(placed),
        direction_right=right is not None and expected.direction in (None, right.diagnosis.direction),
        detect_s=None if right is None else right.said_s - onset_s,
        wrong_isolations=sum(_isolates_wrongly(expected, stamped.diagnosis) for stamped in hardware),
        wrong_diagnoses=len(hardware) - sum(stamped.diagnosis.fault is expected.fault for stamped in placed),
    )


def _place_is_right(expected: Expected, diagnosis: Diagnosis) -> bool:
    if expected.peer is None:
        return diagnosis.node == expected.node and diagnosis.scope in {Scope.NODE, Scope.RANK}
    return diagnosis.scope is Scope.LINK and {diagnosis.node, diagnosis.peer} == {expected.node, expected.peer}


def _isolates_wrongly(expected: Expected, diagnosis: Diagnosis) -> bool:
    """Check for a quarantine of another node, or of any node for a link fault."""
    return diagnosis.isolate and (diagnosis.node != expected.node or expected.peer is not None)
