"""Assignment of experts to nodes by simulated annealing over exact changes of cost.

Two experts swap nodes, or one moves to a node with free slots.  A change is accepted when

    traffic + PENALTY * sum over n of max(0, load(n) - limit(n))

falls, or rises within the chance that a falling temperature allows.  Traffic counts per token, load as a part of the
layer's.  Limits go from loose to tight and each continues from the last, which gives a front of traffic against
balance.  Proposals are counted, so equal arguments give equal results.

A layer's experts on nodes are a partition of a hypergraph.  Tokens are hyperedges over their experts; a token pays for
each node where it has one.  As with Fiduccia and Mattheyses (DAC 1982) gains are stored per expert and not computed
from tokens.  An expert has one home node, or it lies everywhere, which costs nothing under the rule `nearest`, or is
spread over some nodes, and then stays.  With

    hits(t, n)   experts of token t with home n
    W(t, n)      what token t pays more when n is certainly reached; less where a spread expert may reach it anyway
    A(e, n)      sum of W(t, n) over the tokens t of e with hits(t, n) = 0: paid when e moves to n
    J(e, f)      sum of W(t, home(e)) over the tokens t of both e and f where e alone hits its home

the cost changes by A(e, n) - J(e, e) when e moves to n, and when e and f swap homes by that of both + J(e, f) +
J(f, e).  Both are exact for any shared tokens, and take a few lookups; only an accepted change updates tokens.  All
values are whole numbers, so sums never drift.
"""

from math import exp
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from numba import float64, int8, int16, int32, int64, types, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints

Hits = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int32]
State = npt.NDArray[np.uint64]  # of a random sequence
PENALTY = 20.0  # cost per token, for all of a layer's load above its limit
MOVES = 0.1  # of all proposals; the others are swaps
MAX_WORSENING = 12.0  # temperatures
NO_EXPERT = -1  # instead of an expert
_tuple_of: Any = cast("Any", types).NamedTuple


class Cut(NamedTuple):
    """One layer's experts on nodes."""

    trace: Experts  # [tokens, k]
    first: Ints  # [experts + 1]: expert e's tokens are of_expert[first[e] : first[e + 1]]
    of_expert: Counts  # [tokens * k]
    home: Ints  # [experts]; below 0 where it lies on several nodes
    hits: Hits  # [tokens, nodes]
    weight: Counts  # [tokens, nodes]: W
    come: Counts  # [experts, nodes]: A
    alone: Counts  # [experts, experts]: J

    @classmethod
    def of(cls, trace: Experts, home: Ints, weight: Counts) -> "Cut":
        """Not counted yet."""
        (tokens, active), nodes, experts = trace.shape, weight.shape[1], len(home)
        first = np.concatenate([[0], np.cumsum(np.bincount(trace.ravel(), minlength=experts))]).astype(np.int64)
        of_expert = (np.argsort(trace.ravel(), kind="stable") // active).astype(np.int32)
        hits, come = np.zeros((tokens, nodes), np.int8), np.zeros((experts, nodes), np.int32)
        return cls(trace, first, of_expert, home, hits, weight, come, np.zeros((experts, experts), np.int32))


CUT = _tuple_of(
    (int16[:, ::1], int64[::1], int32[::1], int64[::1], int8[:, ::1], int32[:, ::1], int32[:, ::1], int32[:, ::1]), Cut
)


@jit_inner
def count(cut: Cut) -> None:
    """Compute hits, A and J, which are 0 before."""
    tokens, active = cut.trace.shape
    nodes = cut.hits.shape[1]
    for token in range(tokens):
        for at in range(active):
            home = cut.home[cut.trace[token, at]]
            if home >= 0:
                cut.hits[token, home] += 1
        for node in range(nodes):
            if cut.hits[token, node] == 0:
                _coming(cut, token, node, cut.weight[token, node])
        for at in range(active):
            expert = int(cut.trace[token, at])
            home = cut.home[expert]
            if home >= 0 and cut.hits[token, home] == 1:
                _credit(cut, token, expert, cut.weight[token, home])


@jit_inner
def _credit(cut: Cut, token: int, expert: int, weight: int) -> None:
    """Add an expert that is alone on its home, or remove it with a negative weight.  Without views, for speed."""
    for at in range(cut.trace.shape[1]):
        cut.alone[expert, cut.trace[token, at]] += weight


@jit_inner
def _credit_other(cut: Cut, token: int, expert: int, node: int, weight: int) -> None:
    """The same for the expert that shares a home with this one."""
    for at in range(cut.trace.shape[1]):
        other = int(cut.trace[token, at])
        if cut.home[other] == node and other != expert:
            _credit(cut, token, other, weight)
            return


@jit_inner
def _coming(cut: Cut, token: int, node: int, weight: int) -> None:
    for at in range(cut.trace.shape[1]):
        cut.come[cut.trace[token, at], node] += weight


@jit_inner
def _hit(cut: Cut, token: int, expert: int, node: int, sign: int) -> None:
    """Update A for an expert of the token that arrives on a node, or leaves it with sign -1."""
    weight, before = sign * cut.weight[token, node], int(cut.hits[token, node])
    cut.hits[token, node] = before + sign
    others = min(before, before + sign)
    if others == 0:
        _credit(cut, token, expert, weight)
        _coming(cut, token, node, -weight)
    elif others == 1:
        _credit_other(cut, token, expert, node, -weight)


@jit_inner
def shift(cut: Cut, expert: int, to: int) -> None:
    """Move an expert to another home."""
    for side in range(2):
        node, sign = (cut.home[expert], -1) if side == 0 else (to, 1)
        for at in range(cut.first[expert], cut.first[expert + 1]):
            _hit(cut, int(cut.of_expert[at]), expert, node, sign)
    cut.home[expert] = to


@jit_inner
def change(cut: Cut, expert: int, to: int) -> int:
    """The change of cost when one expert moves."""
    return int(cut.come[expert, to] - cut.alone[expert, expert])


@jit_inner
def change_of_swap(cut: Cut, one: int, other: int) -> int:
    """The change of cost when two experts swap homes."""
    both = cut.alone[one, other] + cut.alone[other, one]
    return change(cut, one, cut.home[other]) + change(cut, other, cut.home[one]) + int(both)


class Nodes(NamedTuple):
    loads: Floats  # [experts]: parts of the layer's tokens
    least: Ints  # [experts]: slots of an expert on its node
    slots: Ints  # [nodes]
    load: Floats  # [nodes]
    used: Ints  # [nodes]: slots


NODES = _tuple_of((float64[::1], int64[::1], int64[::1], float64[::1], int64[::1]), Nodes)


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
    return worse < MAX_WORSENING * temperature and _draw(state) < exp(-worse / temperature)


@jit_inner
def _propose(  # noqa: PLR0917 - compiled code takes no keywords
    cut: Cut, nodes: Nodes, limit: Floats, temperature: float, unit: float, state: State
) -> None:
    """Propose that two experts swap nodes, or that one moves."""
    one, other = int(_draw(state) * len(cut.home)), NO_EXPERT
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


@jit_entry(int64[:, ::1](CUT, NODES, float64[:, ::1], float64[:, ::1], float64, int64, uint64[::1]))
def front(  # noqa: PLR0917 - compiled code takes no keywords
    cut: Cut, nodes: Nodes, limits: Floats, temperatures: Floats, unit: float, proposals: int, state: State
) -> Ints:
    """[limits, experts]: nodes, one result of the layer per limit; changes its arguments.

    `limits` [limits, nodes]; `heats` [limits, 2]: temperatures from and to, per token; `unit` is the gain of a cost of
    1 for every token.
    """
    count(cut)
    found = np.empty((len(limits), len(cut.home)), np.int64)
    for at in range(len(limits)):
        temperature = temperatures[at, 0]
        cooling = (temperatures[at, 1] / temperature) ** (1.0 / max(1, proposals))
        limit = limits[at]
        for _ in range(proposals):
            temperature *= cooling
            _propose(cut, nodes, limit, temperature, unit, state)
        for expert in range(len(cut.home)):
            found[at, expert] = cut.home[expert]
    return found
