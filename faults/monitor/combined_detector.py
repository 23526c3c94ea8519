"""A small job whose leaves are known: the quick detector names, the job-wide fit finds switches and consents.

    wires   what either says; where both say something of one node, the quick one's word
    switch  while the fit names a leaf or an uplink, of wires only what the fit names beside it
    isolate a wire only where the fit would; and not where the quick detector, awake, sees it and would not
    ranks   what either says; the quick one's word where both do

A slow leaf looks to the quick detector like several slow nodes, and some of them come first.  The fit takes four
windows, which a name need not wait for and a node's isolation must.
"""

from collections.abc import Iterator, Sequence

from faults.detector import Detector
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.monitor.dedup import SWITCHES, key_of
from faults.observations import Observation


class CombinedDetector:
    """Two detectors as one `Detector`."""

    def __init__(self, quick: Detector, fit: Detector) -> None:
        self._quick, self._fit = quick, fit

    def observe(self, observation: Observation) -> None:
        """Take one in."""
        self._quick.observe(observation)
        self._fit.observe(observation)

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """What either believes, one word for each fault."""
        return tuple(joined(self._quick.evaluate(now_s), self._fit.evaluate(now_s)))


def joined(quick: Sequence[Diagnosis], fit: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    """One word for each fault."""
    consents = {key_of(diagnosis) for diagnosis in fit if diagnosis.isolate}
    fitted = {key_of(diagnosis) for diagnosis in fit}
    switch = any(diagnosis.scope in SWITCHES for diagnosis in fit)
    said, ends = set(), set[int]()
    for diagnosis in quick:
        key = key_of(diagnosis)
        if _is_wire(diagnosis):
            if switch and key not in fitted:
                continue
            ends |= _ends(diagnosis)
            yield diagnosis.model_copy(update={"isolate": diagnosis.isolate and key in consents})
        else:
            yield diagnosis
        said.add(key)
    for diagnosis in fit:
        if key_of(diagnosis) not in said and not (_is_wire(diagnosis) and ends & _ends(diagnosis)):
            yield diagnosis


def _is_wire(diagnosis: Diagnosis) -> bool:
    return diagnosis.fault is FaultClass.COMM_SLOW and diagnosis.scope in (Scope.NODE, Scope.LINK)


def _ends(diagnosis: Diagnosis) -> set[int]:
    return {end for end in (diagnosis.node, diagnosis.peer) if end is not None}
