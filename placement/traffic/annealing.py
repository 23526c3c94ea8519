"""Assignment of experts to nodes by simulated annealing over exact changes of cost (`hypergraph_gains`).

Two experts swap nodes, or one moves to a node with free slots.  A change is accepted when

    traffic + PENALTY * sum over n of max(0, load(n) - limit(n))

falls, or rises within the chance that a falling temperature allows.  Traffic counts per token, load as a part of the
layer's.  Limits go from loose to tight and each continues from the last, which gives a front of traffic against
balance.  Proposals are counted, so equal arguments give equal results.
"""

from math import exp
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import float64, int16, int32, int64, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.traffic.hypergraph_gains import Counts, Cut, Hits, change, change_of_swap, count, shift

State = npt.NDArray[np.uint64]  # of a random sequence

PENALTY = 20.0  # cost per token, for all of a layer's load above its limit
MOVES = 0.1  # of all proposals; the others are swaps
HOPELESS = 12.0  # temperatures
NOBODY = -1  # instead of an expert


class Nodes(NamedTuple):
    loads: Floats  # [experts]: parts of the layer's tokens
    least: Ints  # [experts]: slots of an expert on its node
    slots: Ints  # [nodes]
    load: Floats  # [nodes]
    used: Ints  # [nodes]: slots


@jit_inner
def _draw(state: State) -> float:
    """The next random number from 0 to below 1 (Marsaglia's xorshift64)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return float(x >> np.uint64(11)) * 2.0**-53


@jit_inner
def _over(nodes: Nodes, limit: Floats, a: int, b: int, more: float) -> float:
    """The change of load above limits when `more` moves from a to b."""
    over: float = max(0.0, nodes.load[a] - more - limit[a]) - max(0.0, nodes.load[a] - limit[a])
    over += max(0.0, nodes.load[b] + more - limit[b]) - max(0.0, nodes.load[b] - limit[b])
    return over


@jit_inner
def _accepts(worse: float, temperature: float, state: State) -> bool:
    if worse <= 0.0:
        return True
    return worse < HOPELESS * temperature and _draw(state) < exp(-worse / temperature)


@jit_inner
def _propose(  # noqa: PLR0917 - compiled code takes no keywords
    cut: Cut, nodes: Nodes, limit: Floats, temperature: float, unit: float, state: State
) -> None:
    """Propose that two experts swap nodes, or that one moves."""
    one, other = int(_draw(state) * len(cut.home)), NOBODY
    if _draw(state) < MOVES:
        b = int(_draw(state) * len(limit))
    else:
        other = int(_draw(state) * len(cut.home))
        b = cut.home[other]
    a = cut.home[one]
    if a < 0 or b < 0 or a == b:
        return
    more, slots = nodes.loads[one], nodes.least[one]
    if other >= 0:
        more, slots = more - nodes.loads[other], slots - nodes.least[other]
    if nodes.used[b] + slots > nodes.slots[b] or nodes.used[a] - slots > nodes.slots[a]:
        return
    paid = change(cut, one, b) if other < 0 else change_of_swap(cut, one, other)
    if not _accepts(PENALTY * _over(nodes, limit, a, b, more) + paid / unit, temperature, state):
        return
    nodes.load[a] -= more
    nodes.load[b] += more
    nodes.used[a] -= slots
    nodes.used[b] += slots
    shift(cut, one, b)
    if other >= 0:
        shift(cut, other, a)


@jit_entry(
    int64[:, ::1](
        int16[:, ::1],
        int64[::1],
        int32[::1],
        int64[::1],
        int32[:, ::1],
        float64[::1],
        int64[::1],
        int64[::1],
        float64[::1],
        int64[::1],
        float64[:, ::1],
        float64[:, ::1],
        float64,
        int64,
        uint64[::1],
    )
)
def front(  # noqa: PLR0917 - compiled code takes no keywords
    trace: Experts,
    first: Ints,
    of_expert: Counts,
    home: Ints,
    weight: Counts,
    loads: Floats,
    least: Ints,
    slots: Ints,
    load: Floats,
    used: Ints,
    limits: Floats,
    heats: Floats,
    unit: float,
    proposals: int,
    state: State,
) -> Ints:
    """[limits, experts]: nodes, one result of the layer per limit.

    `Cut` and `Nodes` describe the arrays, which must agree with `home`; `home`, `load`, `used` and `state` change.
    `loads` adds up to 1.  `limits` [limits, nodes]; `heats` [limits, 2]: temperatures from and to, per token; `unit` is
    the gain of a cost of 1 for every token.
    """
    experts, nodes = len(home), len(slots)
    hits: Hits = np.zeros((len(trace), nodes), np.int8)
    come: Counts = np.zeros((experts, nodes), np.int32)
    alone: Counts = np.zeros((experts, experts), np.int32)
    cut = Cut(trace, first, of_expert, home, hits, weight, come, alone)
    books = Nodes(loads, least, slots, load, used)
    count(cut)
    found = np.empty((len(limits), experts), np.int64)
    for at in range(len(limits)):
        temperature = heats[at, 0]
        cooling = (heats[at, 1] / temperature) ** (1.0 / max(1, proposals))
        limit = limits[at]
        for _ in range(proposals):
            temperature *= cooling
            _propose(cut, books, limit, temperature, unit, state)
        for expert in range(experts):
            found[at, expert] = home[expert]
    return found
