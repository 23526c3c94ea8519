"""Evidence for hosts and switches over windows: a CUSUM of the nats by which the fit needs each suspect.

docs/explanation/faults/localisation.md, "From windows to a diagnosis"
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.localisation.entities import Entities, Kind

BOTH, NEAR = 2, 0.3  # directions; share of the larger
SUSPECTED_NATS = 3.0  # nats above which a suspect is kept
FIT_NATS = 2.0  # nats: x was fitted; the log of the ratio between a maximum and an average over x
MAX = 60.0  # nats: twice any bar; a larger sum would only decay slowly
DECAY = 0.7  # per window, of the difference between directions
NEEDED, ALONE = 4.0, 2.0  # nats of a supporting window, in the fit and without the windows before
_NONE, _ONE = np.uint32(0), np.uint32(1)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Evidence per slot of suspects, and per entity for the directions of one suspect."""

    nats: Floats  # per slot
    since: Floats  # per slot: start of the evidence, s
    hits: NDArray[np.uint32]  # per slot: whether a window supports it alone, newest in the lowest bit
    chosen: Floats  # per entity


def start(all_of: Entities) -> Suspicion:
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
    """Add one window: the fit examined `selected` and gave `x`; `evidence` is in nats per examined entity, `alone` that
    of this window without the ones before.
    """
    known, observed_slots, mine = before.nats, all_of.slot[observed], all_of.slot[selected]
    hits, chosen, new, share = before.hits << _ONE, DECAY * before.chosen, np.zeros(known.size), np.ones(known.size)
    new[observed_slots] = -FIT_NATS - known[observed_slots] / 2.0
    # The best of the examined entities of each suspect; if any was chosen, the sum of those.
    new[mine] = -np.inf
    np.maximum.at(new, mine, evidence - FIT_NATS)
    used = x[selected] > 0.0
    new[mine[used]] = 0.0
    np.add.at(new, mine[used], evidence[used] - FIT_NATS)
    chosen[selected[used]] += evidence[used]
    hits[mine[(evidence > NEEDED) & (alone > ALONE)]] |= _ONE
    for at in np.flatnonzero(known[mine] > 0.0):
        edges = all_of.edges_of(int(selected[at]))
        share[mine[at]] = np.cumsum(fresh[edges])[-1] / edges.size
    total = np.minimum(MAX, np.maximum(np.maximum(0.0, known + np.where(new > 0.0, share * new, new)), new))
    since = np.where(total > 0.0, np.where(known > 0.0, before.since, from_s), np.nan)
    return Suspicion(total, since, hits, chosen)


def silent(before: Suspicion) -> Suspicion:
    """Advance by a window without traffic: evidence stays, and nothing is added."""
    return replace(before, hits=before.hits << _ONE)


def recent_hits(hits: np.uint32, windows: int, unobserved: np.uint32 = _NONE) -> int:
    """Return the number of recent windows with support; windows in `unobserved` had no traffic and do not count."""
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
