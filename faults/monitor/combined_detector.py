"""Combines the detectors of a small job with known leaves: the pairwise one is fast, the large-job fit finds switches.

    NICs and links   diagnoses of both; for the same node that of the pairwise detector
    switches         while the fit diagnoses a leaf or uplink, only NICs and links that the fit diagnoses too
    isolation        of a NIC only if both detectors justify it
    ranks            diagnoses of both; for the same rank that of the pairwise detector

A slow leaf looks to the pairwise detector like several slow nodes.  The fit needs four windows: a diagnosis does not
wait for it, an isolation does.
"""

from collections.abc import Iterator, Sequence

from faults.detector import Detector
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.monitor.dedup import SWITCHES, key_of
from faults.observations import Observation


class CombinedDetector:
    def __init__(self, pairwise: Detector, fit: Detector) -> None:
        self._pairwise, self._fit = pairwise, fit

    def observe(self, observation: Observation) -> None:
        self._pairwise.observe(observation)
        self._fit.observe(observation)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """Return the combined diagnoses, one per fault."""
        return tuple(combine(self._pairwise.evaluate(now_s), self._fit.evaluate(now_s)))


def combine(pairwise: Sequence[Diagnosis], fit: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    """Return the combined diagnoses, one per fault."""
    isolating = {key_of(diagnosis) for diagnosis in fit if diagnosis.isolate}
    fitted = {key_of(diagnosis) for diagnosis in fit}
    switch = any(diagnosis.scope in SWITCHES for diagnosis in fit)
    given, ends = set(), set[int]()
    for diagnosis in pairwise:
        key = key_of(diagnosis)
        if _is_wire(diagnosis):
            if switch and key not in fitted:
                continue
            ends |= _ends(diagnosis)
            yield diagnosis.model_copy(update={"isolate": diagnosis.isolate and key in isolating})
        else:
            yield diagnosis
        given.add(key)
    for diagnosis in fit:
        if key_of(diagnosis) not in given and not (_is_wire(diagnosis) and ends & _ends(diagnosis)):
            yield diagnosis


def _is_wire(diagnosis: Diagnosis) -> bool:
    return diagnosis.fault is FaultClass.COMM_SLOW and diagnosis.scope in (Scope.NODE, Scope.LINK)


def _ends(diagnosis: Diagnosis) -> set[int]:
    return {end for end in (diagnosis.node, diagnosis.peer) if end is not None}
