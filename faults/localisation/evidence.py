"""Evidence for hosts and switches over windows.

With l(t) the nats by which the fit needs the suspect, less TOLL: C(t) = max(0, l(t), C(t-1) + fresh l(t)), a CUSUM of
log likelihood ratios.  Tx, Rx and both of a NIC share one suspect.  `fresh` is the share of the variance that is
independent in each window: the error of an edge's usual is the same every time, so its repetition proves nothing.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.localisation.entities import Entities, Kind

BOTH, NEAR = 2, 0.3  # directions; share of the larger
SPAN = 3.0  # nats above which a suspect is kept
_NONE = np.uint32(0)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Evidence per slot of suspects, and per entity for the directions of one suspect."""

    nats: Floats  # per slot
    since: Floats  # per slot: start of the evidence, s
    hits: NDArray[np.uint32]  # per slot: whether a window supports it alone, newest in the lowest bit
    chosen: Floats  # per entity


def start(all_of: Entities) -> Suspicion:
    """Return the state without suspects."""
    slots = all_of.slots
    return Suspicion(np.zeros(slots), np.full(slots, np.nan), np.zeros(slots, np.uint32), np.zeros(len(all_of)))


def gather(  # noqa: PLR0917 - arrays of one window
    before: Suspicion,
    all_of: Entities,
    selected: Ints,
    x: Floats,
    evidence: Floats,
    alone: Floats,
    fresh: Floats,
    observed: NDArray[np.bool_],
    from_s: float,
) -> Suspicion:
    """Add one window: the fit examined `chosen` and gave `x`; `evidence` is in nats per examined entity, `alone` that
    of this window without the ones before.
    """
    from faults.localisation import evidence_kernel  # noqa: PLC0415

    slots = all_of.slots
    new = Suspicion(np.empty(slots), np.empty(slots), np.empty(slots, np.uint32), np.empty(len(all_of)))
    evidence_kernel.gather(
        all_of.slot, all_of.first, all_of.edge, selected, x, evidence, alone, fresh, observed, from_s, before.nats,
        before.since, before.hits, before.chosen, new.nats, new.since, new.hits, new.chosen,
    )  # fmt: skip
    return new


def silent(before: Suspicion) -> Suspicion:
    """Advance by a window without traffic: evidence stays, and nothing is added."""
    return replace(before, hits=before.hits << np.uint32(1))


def recent_hits(hits: np.uint32, windows: int, unobserved: np.uint32 = _NONE) -> int:
    """Return the number of recent windows with support; `quiet` windows had no traffic and do not count."""
    found, left, hit, still = 0, windows, int(hits), int(unobserved)
    while left and (hit or still):
        if not still & 1:
            found, left = found + (hit & 1), left - 1
        hit, still = hit >> 1, still >> 1
    return found


def outlasts(hits: np.uint32, unobserved: np.uint32, windows: int, *, spare: int) -> bool:
    """Return whether this window, one too long ago for a common hiccup, and nearly all between support the suspect."""
    for ago in range(windows - 1, windows + spare):
        between = range(1, ago)
        missed = sum(not (int(hits) | int(unobserved)) >> at & 1 for at in between)
        if int(hits) & 1 and int(hits) >> ago & 1 and missed <= spare:
            return True
    return False


def run_of_hits(hits: np.uint32, unobserved: np.uint32) -> tuple[int, int]:
    """Return (number of supporting windows in a row up to this one, without quiet ones; the same by the clock)."""
    hit, still, count, windows, at = int(hits), int(unobserved), 0, 0, 0
    while (hit | still) >> at & 1:
        at += 1
        if hit >> (at - 1) & 1:
            count, windows = count + 1, at
    return count, windows


def direction_of(all_of: Entities, suspicion: Suspicion, slot: int) -> Kind:
    """Return the kind with the most evidence among those of one suspect; two that are close mean both directions."""
    same = np.flatnonzero(all_of.slot == slot)
    chosen = suspicion.chosen[same]
    kinds = all_of.kind[same]
    ways = chosen[(kinds == Kind.TX) | (kinds == Kind.RX)]
    if ways.size == BOTH and ways.min() > NEAR * chosen.max():
        return Kind.NIC
    return Kind(int(kinds[int(np.argmax(chosen))]))
