"""The plan of a job's paths: few connections, and no cable above 1.02 times the fractional optimum.

1. Every flow has the connections that the job gives it, and the cuts are the limit.  A plan that succeeds is optimal.
2. The limit is 1.02 times the bound of the cuts.  Flows that do not fit are split, all into the same and
   smallest number of parts that fits; the others stay whole.
3. Every flow is split.
4. The linear program is solved for a better bound, and all of it is tried again.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from faults.path_planning.assignment import DOWN, UP, Assignment, Part, Path
from faults.path_planning.bound import Bound, cut_bound, fractional_optimum, refuse_cut_off
from faults.path_planning.clos import Routes
from faults.path_planning.traffic import Traffic

TOLERANCE: Final = 0.02  # above the fractional optimum, before a flow is split
EXACT: Final = 1e-9
SWAPS: Final = 24  # rounds in which all are first tried whole again; then the removed flows are split
PATIENCE: Final = 100  # rounds without fewer flows left
MAX_LEFT: Final = 16  # with more, another number of parts is tried
MAX_REMOVED: Final = (1, 1, 2, 4)  # a flow that does not fit removes one of these numbers of others, at random
ROUNDS: Final = 160  # removals per number of parts
COUNTS: Final = 2  # numbers of parts that are tried for all flows at once, and in a repair
RAISE: Final = 1.01  # of the limit, when even the most connections do not fit


@dataclass(frozen=True)
class Plan:
    traffic: Traffic
    paths: Mapping[Part, Path]
    bound: Bound

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(sorted(self.paths, key=lambda part: (part.flow, part.index)))

    @cached_property
    def greatest(self) -> float:
        load: dict[int, float] = defaultdict(float)
        for part, path in self.paths.items():
            for link in path:
                load[link] += part.gb_per_s
        return max((at / self.traffic.clos.wires[link // 2].gb_per_s for link, at in load.items()), default=0.0)

    @cached_property
    def split(self) -> int:
        """Return the flows with more connections than the job gives them."""
        counts: dict[int, int] = {}
        for part in self.paths:
            counts[part.flow] = counts.get(part.flow, 0) + 1
        return sum(count > first_count(self.traffic, flow) for flow, count in counts.items())


@dataclass(frozen=True, slots=True)
class Repair:
    """A plan after link failures, with the number of moved connections."""

    plan: Plan
    moved: int  # existing connections on another path
    opened: int
    closed: int


def make_plan(traffic: Traffic) -> Plan:
    """Plan a job's paths; raise RuleError where dead links disconnect two leaves."""
    routes = Routes(traffic.clos)
    refuse_cut_off(traffic, routes)
    cut = cut_bound(traffic)
    assignment = Assignment(traffic.clos, routes)
    if not _whole(assignment, traffic, range(len(traffic.flows)), cut.utilisation * (1 + EXACT)):
        return Plan(traffic, assignment.paths, cut)
    return _within(traffic, Assignment(traffic.clos, routes), range(len(traffic.flows)))


def _within(traffic: Traffic, kept: Assignment, flows: Sequence[int]) -> Plan:
    """Place flows beside the kept ones, within 1.02 times the bound of the cuts or else of the linear program."""
    bound = cut_bound(traffic)
    trial = _tried(traffic, kept, flows, bound)
    if trial.left:
        better = fractional_optimum(traffic, kept.routes)
        if better.utilisation > bound.utilisation * (1 + EXACT):
            trial = _tried(traffic, kept, flows, better)
        bound = better
    return _forced(trial, traffic, kept, bound) if trial.left else Plan(traffic, trial.assignment.paths, bound)


@dataclass(frozen=True, slots=True)
class _Trial:
    assignment: Assignment
    left: list[int]


def _tried(traffic: Traffic, kept: Assignment, flows: Sequence[int], bound: Bound) -> _Trial:
    limit = bound.utilisation * (1 + TOLERANCE)
    assignment = kept.copy()
    off = _beyond(assignment, limit)
    assignment.take_flows(off)
    left = _whole(assignment, traffic, sorted({*flows, *off}), limit)
    trial = _split(assignment, traffic, left, limit, tries=COUNTS if kept.paths else None)
    if trial.left and not kept.paths:
        trial = min(trial, _all_split(traffic, kept, limit), key=lambda trial: len(trial.left))
    return trial


def repair(plan: Plan, dead: Iterable[int]) -> Repair:
    """Plan again after cable failures.  Connections with a live path within the limit keep it.  If the result is not
    optimal, everything is planned from scratch in the same order as before, so most paths stay the same.
    """
    traffic = plan.traffic.on(plan.traffic.clos.without(dead))
    routes = Routes(traffic.clos)
    refuse_cut_off(traffic, routes)
    assignment = Assignment(traffic.clos, routes)
    affected = {part.flow for part, path in plan.paths.items() if any(link // 2 in traffic.clos.dead for link in path)}
    for part, path in plan.paths.items():
        if part.flow not in affected:
            assignment.put(part, path)
    after = _within(traffic, assignment, sorted(affected))
    if after.greatest > after.bound.utilisation * (1 + TOLERANCE + EXACT):
        after = min(after, make_plan(traffic), key=lambda found: found.greatest)
    return _compared(plan, after)


def first_count(traffic: Traffic, flow: int) -> int:
    """Return the default number of connections of a flow: the job's, raised to load all bonded ports equally."""
    ports = traffic.ports(traffic.flows[flow])
    return -(-traffic.job.connections // ports) * ports


def parts_of(traffic: Traffic, flow: int, count: int) -> list[Part]:
    """Split a flow into equal connections, over the ports of both sides in turn."""
    whole = traffic.flows[flow]
    pairs = traffic.port_pairs(whole)
    return [Part(flow, index, *pairs[index % len(pairs)], whole.gb_per_s / count) for index in range(count)]


def _whole(assignment: Assignment, traffic: Traffic, flows: Iterable[int], limit: float) -> list[int]:
    return _attempt(
        assignment, [part for flow in flows for part in parts_of(traffic, flow, first_count(traffic, flow))], limit
    )


def _attempt(assignment: Assignment, parts: Sequence[Part], limit: float) -> list[int]:
    """Place each flow completely or not at all; return those that do not fit."""
    failed = {part.flow for part in assignment.place(parts, limit)}
    for part in parts:
        if part.flow in failed and part in assignment.paths:
            assignment.take(part)
    return sorted(failed)


def _split(
    assignment: Assignment, traffic: Traffic, flows: Sequence[int], limit: float, *, tries: int | None
) -> _Trial:
    """Place the remaining flows in the smallest number of parts with which all fit.

    Where parts do not fit either, other flows of the same leaves are removed, and a new random choice stays whole.
    """
    best = _Trial(assignment, list(flows))
    counts = (
        count
        for count in range(2, traffic.job.most_connections + 1)
        if assignment.fits(_divided(traffic, flows, count), limit)
    )
    for count in islice(counts, tries):
        if not best.left:
            break
        trial = _drawn(assignment.copy(), traffic, flows, count, limit)
        if len(trial.left) < len(best.left):
            best = trial
    return best


def _forced(trial: _Trial, traffic: Traffic, kept: Assignment, bound: Bound) -> Plan:
    """Place with a rising limit, the remaining flows or all, in parts; the lower result is used."""
    limit = bound.utilisation * (1 + TOLERANCE)
    _force(trial.assignment, traffic, trial.left, limit)
    plan = Plan(traffic, trial.assignment.paths, bound)
    while not kept.paths and (limit := limit * RAISE) < plan.greatest:
        other = _all_split(traffic, kept, limit, fairs=(True,))
        if not other.left:
            return Plan(traffic, other.assignment.paths, bound)
    return plan


def _all_split(traffic: Traffic, empty: Assignment, limit: float, *, fairs: Sequence[bool] = (True, False)) -> _Trial:
    """Split every flow into equally many parts: many degraded switches leave too little capacity for whole flows."""
    flows = range(len(traffic.flows))
    best = _Trial(empty, list(flows))
    ways = (
        (fair, count)
        for fair in fairs
        for count in range(2, traffic.job.most_connections + 1)
        if empty.fit_together(_divided(traffic, flows, count), limit, fair=fair)
    )
    for fair, count in islice(ways, COUNTS):
        trial = _drawn(empty.copy(fair=fair), traffic, flows, count, limit, swaps=0)
        best = min(best, trial, key=lambda trial: len(trial.left))
        if not best.left:
            break
    return best


def _drawn(
    assignment: Assignment, traffic: Traffic, flows: Sequence[int], count: int, limit: float, *, swaps: int = SWAPS
) -> _Trial:
    rng = random.Random(count)
    left = _attempt(assignment, _divided(traffic, flows, count), limit)
    least, since = len(left), 0
    for turn in range(ROUNDS):
        if not left or len(left) > MAX_LEFT or turn - since > PATIENCE:
            break
        left += _evicted(assignment, traffic, left, rng)
        if turn < swaps:
            rng.shuffle(left)
            left = _whole(assignment, traffic, left, limit)
        left = _attempt(assignment, _divided(traffic, left, count), limit)
        if len(left) < least:
            least, since = len(left), turn
    return _Trial(assignment, left)


def _evicted(assignment: Assignment, traffic: Traffic, flows: Sequence[int], rng: random.Random) -> list[int]:
    """Select, for each flow that does not fit, one flow of its source's or target's leaf to remove."""
    beside: dict[tuple[int, int], list[int]] = defaultdict(list)
    for part in assignment.paths:
        beside[UP, part.source].append(part.flow)
        beside[DOWN, part.target].append(part.flow)
    removed: set[int] = set()
    for flow in flows:
        for part in parts_of(traffic, flow, first_count(traffic, flow)):
            way = rng.choice(((UP, part.source), (DOWN, part.target)))
            found = sorted(set(beside[way]) - removed)
            removed |= set(rng.sample(found, min(len(found), rng.choice(MAX_REMOVED))))
    assignment.take_flows(removed)
    return sorted(removed)


def _force(assignment: Assignment, traffic: Traffic, left: Sequence[int], limit: float) -> None:
    """Raise the limit for the flows that fit in no number of connections."""
    most = traffic.job.most_connections
    while left:
        limit *= RAISE
        for count in range(1, most + 1):
            left = _attempt(assignment, _divided(traffic, left, count), limit)


def _divided(traffic: Traffic, flows: Iterable[int], count: int) -> list[Part]:
    parts: list[Part] = []
    for flow in flows:
        ports = traffic.ports(traffic.flows[flow])
        parts += parts_of(traffic, flow, max(first_count(traffic, flow), -(-count // ports) * ports))
    return parts


def _beyond(assignment: Assignment, limit: float) -> set[int]:
    """Return flows to remove so that no cable stays above the limit: the fewest that suffice on each cable."""
    over = {
        link: load - limit * assignment.clos.wires[link // 2].gb_per_s
        for link, load in enumerate(assignment.load)
        if load > limit * assignment.clos.wires[link // 2].gb_per_s * (1 + EXACT)
    }
    flows: set[int] = set()
    for part, path in sorted(assignment.paths.items(), key=lambda item: item[0].gb_per_s):
        if any(over.get(link, 0.0) > 0 for link in path):
            flows.add(part.flow)
            for link in path:
                if link in over:
                    over[link] -= part.gb_per_s
    return flows


def _compared(before: Plan, after: Plan) -> Repair:
    old = {(part.flow, part.index): path for part, path in before.paths.items()}
    new = {(part.flow, part.index): path for part, path in after.paths.items()}
    moved = sum(old[key] != new[key] for key in old.keys() & new.keys())
    return Repair(after, moved, len(new.keys() - old.keys()), len(old.keys() - new.keys()))
