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
from faults.diagnosis import FaultClass, Scope, Verdict
from faults.monitor.dedup import SWITCHES, key_of
from faults.observations import Observation


class WithLeaves:
    """Two detectors as one `Detector`."""

    def __init__(self, quick: Detector, fit: Detector) -> None:
        self._quick, self._fit = quick, fit

    def see(self, observation: Observation) -> None:
        """Take one in."""
        self._quick.see(observation)
        self._fit.see(observation)

    def judge(self, now_s: float) -> Sequence[Verdict]:
        """What either believes, one word for each fault."""
        return tuple(joined(self._quick.judge(now_s), self._fit.judge(now_s)))


def joined(quick: Sequence[Verdict], fit: Sequence[Verdict]) -> Iterator[Verdict]:
    """One word for each fault."""
    consents = {key_of(verdict) for verdict in fit if verdict.isolate}
    fitted = {key_of(verdict) for verdict in fit}
    switch = any(verdict.scope in SWITCHES for verdict in fit)
    said, ends = set(), set[int]()
    for verdict in quick:
        key = key_of(verdict)
        if _is_wire(verdict):
            if switch and key not in fitted:
                continue
            ends |= _ends(verdict)
            yield verdict.model_copy(update={"isolate": verdict.isolate and key in consents})
        else:
            yield verdict
        said.add(key)
    for verdict in fit:
        if key_of(verdict) not in said and not (_is_wire(verdict) and ends & _ends(verdict)):
            yield verdict


def _is_wire(verdict: Verdict) -> bool:
    return verdict.fault is FaultClass.COMM_SLOW and verdict.scope in (Scope.NODE, Scope.LINK)


def _ends(verdict: Verdict) -> set[int]:
    return {end for end in (verdict.node, verdict.peer) if end is not None}
