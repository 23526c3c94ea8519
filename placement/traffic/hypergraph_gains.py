"""The gain of each change, kept up to date: a layer's experts on nodes as a partition of a hypergraph.

Tokens are hyperedges over their experts; a token pays for each node where it has one.  As with Fiduccia and Mattheyses
(DAC 1982) gains are stored per expert and not computed from tokens.  An expert has one home node, or it lies
everywhere, which costs nothing under the rule `nearest`, or is spread over some nodes, and then stays.  With

    hits(t, n)   experts of token t with home n
    W(t, n)      what token t pays more when n is certainly reached; less where a spread expert may reach it anyway
    A(e, n)      sum of W(t, n) over the tokens t of e with hits(t, n) = 0: paid when e moves to n
    J(e, f)      sum of W(t, home(e)) over the tokens t of both e and f where e alone hits its home

the cost changes by A(e, n) - J(e, e) when e moves to n, and when e and f swap homes by that of both + J(e, f) +
J(f, e).  Both are exact for any shared tokens, and take a few lookups; only an accepted change updates tokens.

All values are whole numbers, so sums never drift.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.numba_cache import jit_inner
from placement.arrays import Experts, Ints

Hits = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int32]


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
