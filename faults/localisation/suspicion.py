"""Evidence for hosts and switches over windows.

With l(t) the nats by which the fit needs the suspect, less TOLL: C(t) = max(0, l(t), C(t-1) + fresh l(t)), a CUSUM
of log likelihood ratios.  Everything that is one suspect (Tx, Rx and both of a NIC) gathers together.  `fresh` is
the share of the variance that is drawn anew in each window: what is not known of an edge's usual is the same error
every time, and repeating it proves nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.localisation.entities import Entities, Kind

TOLL = 2.0  # nats: x was chosen after looking; log of the ratio between a maximum and an average over x
MOST = 60.0  # nats: twice any bar; more would only be slow to forget
BOTH, NEAR = 2, 0.3  # ways; share of the larger
FADES = 0.7  # per window, of what told the directions apart
SPAN = 3.0  # nats at which a suspect is kept under the eye
NEEDED, ALONE = 4.0, 2.0  # nats of a window that accuses, in the fit and with nothing of the windows before


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Per slot of suspects, and per entity where the directions of one suspect are told apart."""

    nats: Floats  # per slot
    since: Floats  # per slot: from when the evidence is, s
    hits: NDArray[np.uint32]  # per slot: whether a window accuses by itself, newest in the lowest bit
    chosen: Floats  # per entity


def start(all_of: Entities) -> Suspicion:
    """Nobody is suspected."""
    slots = all_of.slots
    return Suspicion(np.zeros(slots), np.full(slots, np.nan), np.zeros(slots, np.uint32), np.zeros(len(all_of)))


def gather(  # noqa: PLR0917 - arrays of one window
    before: Suspicion,
    all_of: Entities,
    who: Ints,
    x: Floats,
    evidence: Floats,
    alone: Floats,
    fresh: Floats,
    heard: NDArray[np.bool_],
    from_s: float,
) -> Suspicion:
    """One window more: `who` was looked at, `x` was chosen, `evidence` is in nats per looked-at entity, `alone` that of
    this window by itself."""
    slot = all_of.slot[who]
    taken = x[who] > 0.0
    nats = evidence - TOLL
    summed = np.zeros(all_of.slots)
    np.add.at(summed, slot[taken], nats[taken])
    best = np.full(all_of.slots, -np.inf)
    np.maximum.at(best, slot, nats)
    hit = np.zeros(all_of.slots, bool)
    hit[slot[taken]] = True
    accuses = np.zeros(all_of.slots, bool)
    accuses[slot[(evidence > NEEDED) & (alone > ALONE)]] = True
    seen = np.isfinite(best)
    told = np.zeros(all_of.slots, bool)
    told[all_of.slot[heard]] = True
    new = np.where(hit, summed, np.where(seen, best, np.where(told, -TOLL - before.nats / 2.0, 0.0)))
    share = np.ones(all_of.slots)
    share[slot] = np.where(before.nats[slot] > 0.0, _mean_fresh(all_of, who, fresh), 1.0)
    total = np.clip(np.maximum(before.nats + np.where(new > 0.0, share, 1.0) * new, new), 0.0, MOST)
    chosen = FADES * before.chosen
    chosen[who[taken]] += evidence[taken]
    return Suspicion(
        nats=total,
        since=np.where(total > 0.0, np.where(before.nats > 0.0, before.since, from_s), np.nan),
        hits=((before.hits << np.uint32(1)) | accuses).astype(np.uint32),
        chosen=chosen,
    )


def _mean_fresh(all_of: Entities, who: Ints, fresh: Floats) -> Floats:
    """Mean over the edges of each entity."""
    counts = (all_of.first[who + 1] - all_of.first[who]).astype(np.int64)
    ends = np.cumsum(counts)
    at = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - counts - all_of.first[who], counts)
    owner = np.repeat(np.arange(who.size), counts)
    return np.bincount(owner, fresh[all_of.edge[at]], minlength=who.size) / np.maximum(counts, 1)


def recent_hits(hits: np.uint32, windows: int) -> int:
    """How many of the last windows accuse."""
    return (int(hits) & ((1 << windows) - 1)).bit_count()


def direction_of(all_of: Entities, suspicion: Suspicion, slot: int) -> Kind:
    """The kind of entity that has gathered most among those of one suspect; two that come near are both."""
    same = np.flatnonzero(all_of.slot == slot)
    chosen = suspicion.chosen[same]
    kinds = all_of.kind[same]
    ways = chosen[(kinds == Kind.TX) | (kinds == Kind.RX)]
    if ways.size == BOTH and ways.min() > NEAR * chosen.max():
        return Kind.NIC
    return Kind(int(kinds[int(np.argmax(chosen))]))
