"""Clock offsets of nodes, from messages that were waited for.

    m_ij = low quartile over the past of received_j - called_i,  where received_j - called_j > WAITED_S
         = w + o_j - o_i                                   w: transit time, equal for all
    minimise  sum (m_ij - w - (o_j - o_i))^2               sum o = 0

The receiver's clock alone shows whether a message was waited for; a message that had arrived before shows only a late
call.  A ring, or messages both ways, separate w from the offsets; without either there is no result.  Transit times
differ far less than NTP clocks.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from faults.fabric import Floats, Ints

WAITED_S: Final = 2e-4  # below the transit time of a message worth timing, above the wake-up of a waiting thread
QUICK: Final = 0.25  # the share of messages without other traffic on their path
FEWEST: Final = 8  # messages of a pair


def ahead_of(ways_s: Mapping[tuple[int, int], float], *, nodes: int) -> Floats:
    """Return o_j - o_i by pair [i, j], from m_ij; NaN if messages do not determine it."""
    apart = np.full((nodes, nodes), np.nan)
    left = set(ways_s)
    while left:
        pairs = _joined(left)
        left -= pairs
        members = sorted({end for pair in pairs for end in pair})
        at = {node: place for place, node in enumerate(members)}
        ends = np.array([(at[source], at[target]) for source, target in sorted(pairs)])
        known_s = np.array([ways_s[pair] for pair in sorted(pairs)])
        found, known = _solved(ends, known_s, count=len(members))
        if known:
            apart[np.ix_(members, members)] = found[None, :] - found[:, None]
    return apart


def _solved(ends: Ints, known_s: Floats, *, count: int) -> tuple[Floats, bool]:
    """Return the offsets by the normal equations, and whether they are determined, up to their sum."""
    source, target = ends.T
    matrix, side = np.zeros((count + 1, count + 1)), np.zeros(count + 1)
    for at, sign in ((source, -1.0), (target, 1.0)):
        np.add.at(matrix, (at, at), 1.0)
        np.add.at(matrix, (at, count), sign)
        np.add.at(matrix, (count, at), sign)
        np.add.at(side, at, sign * known_s)
    np.add.at(matrix, (source, target), -1.0)
    np.add.at(matrix, (target, source), -1.0)
    matrix[count, count], side[count] = len(ends), known_s.sum()
    found, _, rank, _ = np.linalg.lstsq(matrix, side, rcond=None)
    return np.asarray(found[:-1], dtype=np.float64), bool(rank == count)


def _joined(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the pairs of one connected component."""
    ends, found = set(next(iter(sorted(pairs)))), set[tuple[int, int]]()
    while more := {pair for pair in pairs - found if ends & set(pair)}:
        found |= more
        ends |= {end for pair in more for end in pair}
    return found
