"""A lower bound for every assignment: the fractional optimum of the maximum utilisation, with its proof.

    minimise  U
    subject to  sum over routes of a pair of leaves  y = demand of the pair
                y between two spines = sum over cores  z
                load of a trunk and direction <= U x its live capacity

Any weights w >= 0 on directed trunks with sum(w x capacity) = 1 prove U >= sum over pairs of demand x least weight of a
route.  The dual values of the program are put into this formula, so the reported bound does not depend on a tolerance
of the solver.  Cuts around one leaf or pod are also such weights, and are tried first.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np

from faults.path_planning.assignment import DOWN, UP, directed
from faults.path_planning.clos import Clos, Routes, Trunk
from faults.path_planning.traffic import Traffic
from fleet.documents import RuleError

TIME_LIMIT_S: Final = 10.0  # every set of weights is a proof, so a program that is stopped early does no harm

Pair = tuple[int, int]  # leaf of the sender's port, leaf of the receiver's port
Way = tuple[Trunk, int]  # a trunk in one direction


@dataclass(frozen=True, slots=True)
class Bound:
    """The minimum possible value of the maximum utilisation, and its proof."""

    utilisation: float
    proof: str  # "cut" or "duals"


def demands(traffic: Traffic) -> dict[Pair, float]:
    found: dict[Pair, float] = defaultdict(float)
    for flow in traffic.flows:
        pairs = traffic.port_pairs(flow)
        for pair in pairs:
            found[pair] += flow.gb_per_s / len(pairs)
    return dict(found)


def refuse_cut_off(traffic: Traffic, routes: Routes) -> None:
    """Raise RuleError for each pair of leaves without a live route."""
    names = traffic.clos.names
    gone = {pair for pair in demands(traffic) if pair[0] != pair[1] and not routes.turns(*pair)}
    RuleError.raise_for(
        (("dead",), f"there is no live path from {names[one]} to {names[other]}") for one, other in sorted(gone)
    )


def cut_bound(traffic: Traffic) -> Bound:
    """Return the bound of the busiest port, leaf or pod: the traffic across its border over the border's capacity."""
    clos, worst = traffic.clos, 0.0
    sent: dict[tuple[int, int], float] = defaultdict(float)
    for flow in traffic.flows:
        for nic, way in ((flow.source, UP), (flow.target, DOWN)):
            sent[nic, way] += flow.gb_per_s
    for (nic, _), gb_per_s in sent.items():
        worst = max(worst, gb_per_s / (traffic.nics[nic].port_gb_per_s * len(traffic.nics[nic].leaves)))
    for tier in (list(range(len(clos.names))), clos.pod):
        worst = max(worst, _cut(traffic, tier))
    return Bound(worst, "cut")


def _cut(traffic: Traffic, group: Sequence[int]) -> float:
    """Return the load of the busiest border around groups of switches."""
    clos = traffic.clos
    capacity: dict[int, float] = defaultdict(float)
    for (lower, upper), cables in clos.trunks.items():
        if group[lower] != group[upper]:
            capacity[group[lower]] += sum(clos.wires[cable].gb_per_s for cable in cables)
    crossing: dict[tuple[int, int], float] = defaultdict(float)
    for (source, target), gb_per_s in demands(traffic).items():
        if group[source] != group[target]:
            crossing[group[source], UP] += gb_per_s
            crossing[group[target], DOWN] += gb_per_s
    return max(
        (gb_per_s / capacity[place] for (place, _), gb_per_s in crossing.items() if capacity[place]), default=0.0
    )


def fractional_optimum(traffic: Traffic, routes: Routes) -> Bound:
    """Return the proven bound of the linear program, or the bound of the cuts where that is as good."""
    cut = cut_bound(traffic)
    program = _Program(traffic, routes)
    weights = program.weights()
    proven = _proven(weights, traffic, routes)
    return Bound(proven, "duals") if proven > cut.utilisation else cut


def _proven(weights: Mapping[Way, float], traffic: Traffic, routes: Routes) -> float:
    total = sum(weight * _capacity(traffic.clos, trunk) for (trunk, _), weight in weights.items())
    if total <= 0:
        return 0.0
    needed = sum(
        gb_per_s * min(sum(weights.get(step, 0.0) for step in directed(hops)) for hops in routes.ways(*pair))
        for pair, gb_per_s in demands(traffic).items()
    )
    return needed / total


def _capacity(clos: Clos, trunk: Trunk) -> float:
    return sum(clos.wires[cable].gb_per_s for cable in clos.trunks[trunk])


class _Program:
    """The linear program above, as rows and columns for HiGHS.  Column 0 is U."""

    def __init__(self, traffic: Traffic, routes: Routes) -> None:
        self.clos = traffic.clos
        self.rows: dict[object, int] = {}
        self.entries: list[tuple[int, int, float]] = []
        self.columns = 1
        self.demand: dict[int, float] = {}
        cored: set[Trunk] = set()
        for pair, gb_per_s in demands(traffic).items():
            self.demand[self._row(("pair", *pair))] = gb_per_s
            cored |= self._add_turns(pair, routes)
        for up, down in sorted(cored):
            for core in routes.cores(up, down):
                self._add([(("spines", up, down), -1.0), (((up, core), UP), 1.0), (((down, core), DOWN), 1.0)])

    def _add_turns(self, pair: Pair, routes: Routes) -> set[Trunk]:
        source, target = pair
        mine = (("pair", *pair), 1.0)
        if source == target:
            self._add([mine])
            return set()
        cored = set()
        for up, down in routes.turns(source, target):
            column: list[tuple[object, float]] = [mine, (((source, up), UP), 1.0), (((target, down), DOWN), 1.0)]
            if up != down:
                column.append((("spines", up, down), 1.0))
                cored.add((up, down))
            self._add(column)
        return cored

    def _row(self, name: object) -> int:
        return self.rows.setdefault(name, len(self.rows))

    def _add(self, entries: Sequence[tuple[object, float]]) -> None:
        self.entries += [(self._row(name), self.columns, value) for name, value in entries]
        self.columns += 1

    def weights(self) -> Mapping[Way, float]:
        trunks: dict[int, Way] = {
            row: name for name, row in self.rows.items() if isinstance(name, tuple) and isinstance(name[0], tuple)
        }
        capacities = {row: _capacity(self.clos, trunk) for row, (trunk, _) in trunks.items()}
        entries = [*self.entries, *((row, 0, -capacity) for row, capacity in capacities.items())]
        duals = _duals(entries, columns=self.columns, rows=len(self.rows), demand=self.demand, trunks=set(trunks))
        return {way: max(0.0, -float(duals[row])) for row, way in trunks.items()}


def _duals(
    entries: Sequence[tuple[int, int, float]], *, columns: int, rows: int, demand: Mapping[int, float], trunks: set[int]
) -> Any:
    table = np.array(entries, dtype=np.float64)
    order = np.lexsort((table[:, 0], table[:, 1]))
    row, column, value = table[order, 0].astype(np.int32), table[order, 1].astype(np.int32), table[order, 2]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = columns, rows
    program.col_cost_ = np.eye(1, columns)[0]
    program.col_lower_, program.col_upper_ = np.zeros(columns), np.full(columns, highspy.kHighsInf)
    right = np.array([demand.get(each, 0.0) for each in range(rows)])
    program.row_upper_ = right
    program.row_lower_ = np.array([-highspy.kHighsInf if each in trunks else right[each] for each in range(rows)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(column, np.arange(columns + 1)).astype(np.int32)
    program.a_matrix_.index_, program.a_matrix_.value_ = row, value
    solver = highspy.Highs()
    for name, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("solver", "ipm"),
        ("run_crossover", "off"),
        ("time_limit", TIME_LIMIT_S),
    ):
        solver.setOptionValue(name, setting)
    solver.passModel(program)
    solver.run()
    solution = solver.getSolution()
    if not solution.dual_valid:  # out of time: no weights, so the bound of the cuts is used
        return np.zeros(rows)
    return np.asarray(solution.row_dual)
