"""The ranks that a stopped job waits for, from Flight Recorder dumps alone.  docs/explanation/faults/hangs.md, "Dumps"

A graph of ranks and operations: a rank leads to each operation that it waits in, an operation to each member that has
not called it.  The causes are the sinks of the graph.  Calls run ahead of the device and receives are posted early, so
a sink can be a cycle: first the waits that block no rank are removed from it, then the most isolated rank is the cause.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from faults.hangs.components import sinks
from faults.job_state import GroupProgress
from faults.job_state.groups import PAIR

# The root can finish before the others, and a member without data to wait for before the root.
ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather", "_broadcast_oop", "_reduce_oop"})

Operation = tuple[str, int]  # group and number
Vertex = int | Operation  # a rank, or an operation
Edges = Mapping[Vertex, Iterable[Vertex]]


class Reason(StrEnum):
    NOT_CALLED = "not-called"
    NOT_STARTED = "not-started"
    NOT_FINISHED = "not-finished"
    OTHER_OPERATION = "other-operation"
    NO_DUMP = "no-dump"


@dataclass(frozen=True, slots=True)
class Cause:
    rank: int
    reason: Reason
    group: str
    op: str
    waiting: int  # ranks in that operation
    sure: bool  # each rank has a dump, and no other rank can be the cause


@dataclass(frozen=True, slots=True)
class Wait:
    """An unfinished operation: which ranks are in it, and which have not called it."""

    group: str
    description: str
    seq: int
    op: str
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    silent: tuple[int, ...]  # members without a dump, or with one that does not show this group
    finished: tuple[int, ...]  # members that have finished it

    @property
    def is_pair(self) -> bool:
        return PAIR in self.group


@dataclass(frozen=True, slots=True)
class DumpFindings:
    causes: tuple[Cause, ...]
    waits: tuple[Wait, ...]

    @property
    def waiting(self) -> int:
        return len({rank for wait in self.waits for rank in wait.waiting})


@dataclass
class _Graph:
    groups: Mapping[str, GroupProgress]
    reporting: frozenset[int]  # ranks
    waits: dict[Operation, Wait] = field(init=False)

    def __post_init__(self) -> None:
        self.waits = {
            (name, wait.seq): wait
            for name, group in self.groups.items()
            for wait in _waits(name, group, self.reporting)
        }

    @cached_property
    def of_rank(self) -> Mapping[int, tuple[Operation, ...]]:
        """The unfinished operations of each rank, the earliest call first."""
        found: dict[int, list[Operation]] = defaultdict(list)
        for operation, wait in self.waits.items():
            for rank in wait.waiting:
                found[rank].append(operation)
        return {rank: tuple(sorted(each, key=lambda one: self.since_s(one, rank))) for rank, each in found.items()}

    def since_s(self, operation: Operation, rank: int) -> float:
        pending = self.groups[operation[0]].pending.get(rank)
        return pending.since_s if pending is not None and pending.since_s is not None else float("inf")

    def newest_call_s(self, rank: int) -> float:
        return max((group.called_s[rank] for group in self.groups.values() if rank in group.called_s), default=-1.0)


def find_causes(groups: Mapping[str, GroupProgress], *, reporting: Iterable[int]) -> DumpFindings:
    """Return the causes of a stop and the unfinished operations; without an unfinished operation, neither."""
    graph = _Graph(groups, frozenset(reporting))
    behind = _behind(graph)
    causes = list(behind) or [*_of_other_operations(graph)] or [*_missing(graph, frozenset())]
    if behind:
        causes += _missing(graph, frozenset(cause.rank for cause in behind))
    causes = causes or [*_not_started(graph)]
    causes = causes or [*_missing(graph, frozenset(), of_device=True)] or [*_without_dump(graph)]
    of_rank = {cause.rank: cause for cause in reversed(causes)}
    return DumpFindings(tuple(of_rank[rank] for rank in sorted(of_rank)), tuple(graph.waits.values()))


def _waits(name: str, group: GroupProgress, reporting: frozenset[int]) -> Iterator[Wait]:
    is_pair = PAIR in name
    members = sorted(group.members | set(group.entered))
    known = [rank for rank in members if rank in reporting]
    ended = {rank: group.finished.get(rank, 0) for rank in known}
    # An unfinished operation never leaves a dump, so a rank without any of a pair has called none.
    shown = {rank for rank in known if is_pair or rank in group.entered}
    numbers = {ended[rank] + 1 for rank in known if group.entered.get(rank, 0) > ended[rank]}
    for seq in sorted(numbers):
        waiting = [rank for rank in known if ended[rank] == seq - 1 and group.entered.get(rank, 0) >= seq]
        called = Counter(op for rank in waiting if (op := _pending_op(group, rank)) is not None)
        yield Wait(
            group=name,
            description=group.description,
            seq=seq,
            op="send and receive" if is_pair else next((op for op, _ in called.most_common(1)), "operation"),
            waiting=tuple(waiting),
            missing=tuple(rank for rank in members if rank in shown and group.entered.get(rank, 0) < seq),
            silent=tuple(rank for rank in members if rank not in shown),
            finished=tuple(rank for rank in known if ended[rank] >= seq),
        )


def _pending_op(group: GroupProgress, rank: int) -> str | None:
    return group.pending[rank].op if rank in group.pending else None


def _of_other_operations(graph: _Graph) -> Iterator[Cause]:
    """Return the ranks that have called another collective than most members, with the same number."""
    for wait in graph.waits.values():
        if wait.is_pair:
            continue
        ops = {rank: _pending_op(graph.groups[wait.group], rank) for rank in wait.waiting}
        others = {rank: op for rank, op in ops.items() if op is not None and op != wait.op}
        if 2 * len(others) < len(wait.waiting):
            for rank, op in others.items():
                waiting = len(wait.waiting) - len(others)
                yield Cause(rank, Reason.OTHER_OPERATION, wait.description or wait.group, op, waiting, sure=False)


def _behind(graph: _Graph) -> list[Cause]:
    """Return the ranks that have not finished operations which their peers have finished, in each shared group.

    A collective ends nowhere before each rank takes part in it, so only such a rank's own device or process is stuck.
    """
    found: dict[int, Cause] = {}
    ahead: set[int] = set()
    for rank, operations in graph.of_rank.items():
        waits = (graph.waits[operation] for operation in operations)
        behind = (wait for wait in waits if wait.finished and not (wait.is_pair or wait.op in ROOTED))
        if (first := next(behind, None)) is not None:
            found[rank] = _cause(rank, Reason.NOT_FINISHED, first, sure=True)
    for name, group in graph.groups.items():
        others = [group.finished[rank] for rank in group.members if rank in group.finished and rank not in found]
        if PAIR not in name and others:
            ahead |= {rank for rank in found if rank in group.members and group.finished.get(rank, 0) > max(others)}
    return [cause for rank, cause in found.items() if rank not in ahead]


def _missing(graph: _Graph, stuck: frozenset[int], *, of_device: bool = False) -> Iterator[Cause]:
    """Return the ranks that others wait for and that wait for none; `stuck` ones are known causes."""
    edges = _edges(graph, stuck, of_device=of_device)
    cycles: list[frozenset[Vertex]] = []
    found: set[int] = set()
    for sink in sinks(edges):
        ranks = sorted(vertex for vertex in sink if isinstance(vertex, int))
        if len(sink) > 1:
            cycles.append(sink)
        elif ranks and ranks[0] not in stuck:
            found.add(ranks[0])
    if not found and not stuck:
        for cycle in cycles:
            found |= _in_cycle(graph, edges, cycle)
    for rank in sorted(found):
        wait = _widest_wait(graph, rank)
        if wait is not None:
            yield _cause(rank, Reason.NOT_CALLED, wait, sure=not any(each.silent for each in graph.waits.values()))


def _edges(graph: _Graph, stuck: frozenset[int], *, of_device: bool) -> dict[Vertex, tuple[Vertex, ...]]:
    """Return the graph; with `of_device`, an operation that all have called leads to those at an earlier one."""
    edges: dict[Vertex, tuple[Vertex, ...]] = {}
    for operation, wait in graph.waits.items():
        if (wait.finished and not wait.is_pair) or stuck.issuperset(wait.waiting):
            continue
        is_called = of_device and not (wait.missing or wait.silent)
        behind = (rank for rank in wait.waiting if is_called and graph.of_rank[rank][0] != operation)
        edges[operation] = (*wait.missing, *behind)
        edges |= {rank: () for rank in wait.missing if rank not in edges}
    for rank, operations in graph.of_rank.items():
        edges[rank] = () if rank in stuck else tuple(each for each in operations if each in edges)
    return edges


def _in_cycle(graph: _Graph, edges: Edges, cycle: frozenset[Vertex]) -> set[int]:
    """Return the cause within ranks that wait for each other: the one whose wait does not block it."""
    missing = {rank for wait in graph.waits.values() for rank in wait.missing}
    inner = {vertex: tuple(each for each in edges[vertex] if each in cycle) for vertex in cycle}
    for removable in (_is_send, _is_overtaken):
        inner = {
            vertex: tuple(
                each
                for each in targets
                if not (isinstance(vertex, int) and isinstance(each, tuple) and removable(graph, each, vertex))
            )
            for vertex, targets in inner.items()
        }
        alone = {vertex for sink in sinks(inner) if len(sink) == 1 for vertex in sink if isinstance(vertex, int)}
        if wanted := alone & missing:
            return wanted
    ranks = [vertex for vertex in cycle if isinstance(vertex, int) and vertex in missing]
    late = [(_first_missed_s(graph, rank), rank) for rank in ranks]
    if any(at_s < float("inf") for at_s, _ in late):
        return {min(late)[1]}
    if not ranks:
        return set()
    return {min(ranks, key=lambda rank: (graph.newest_call_s(rank), rank))}


def _is_send(graph: _Graph, operation: Operation, rank: int) -> bool:
    """Return whether the rank's part of the operation is a send, which rarely blocks a rank."""
    op = _pending_op(graph.groups[operation[0]], rank)
    return op is not None and op.startswith("send")


def _is_overtaken(graph: _Graph, operation: Operation, rank: int) -> bool:
    """Return whether the rank has called another operation after this one, which therefore did not block it."""
    called_s = graph.groups[operation[0]].called_s.get(rank, graph.since_s(operation, rank))
    return called_s < graph.newest_call_s(rank)


def _first_missed_s(graph: _Graph, rank: int) -> float:
    """Return when a peer first called a collective that only this rank has not called."""
    return min(
        (
            graph.since_s(operation, peer)
            for operation, wait in graph.waits.items()
            if not wait.is_pair and wait.missing == (rank,) and len(wait.waiting) > 1
            for peer in wait.waiting
        ),
        default=float("inf"),
    )


def _not_started(graph: _Graph) -> Iterator[Cause]:
    """Return the ranks whose device has not started an operation, although no earlier one holds it."""
    started = {
        (operation, rank)
        for operation, wait in graph.waits.items()
        for rank in wait.waiting
        if graph.groups[operation[0]].started.get(rank, 0) >= operation[1]
    }
    if not started:  # the job records no times of the device
        return
    certain: list[Cause] = []
    possible: list[Cause] = []
    for operation, wait in graph.waits.items():
        if wait.missing or wait.finished:
            continue
        peers = [rank for rank in wait.waiting if (operation, rank) in started]
        harmless = {kind for rank in peers for kind in _earlier(graph, operation, rank)}
        for rank in wait.waiting:
            earlier = set(_earlier(graph, operation, rank))
            if rank not in peers and earlier <= harmless:
                cause = _cause(rank, Reason.NOT_STARTED, wait, sure=not wait.silent)
                (possible if earlier else certain).append(cause)
    yield from certain or possible


def _earlier(graph: _Graph, operation: Operation, rank: int) -> Iterator[tuple[str, str | None]]:
    """Return the kinds of the rank's unfinished operations before this one, such as a receive that was posted early."""
    for name, seq in graph.of_rank[rank]:
        if (name, seq) == operation:
            return
        yield graph.groups[name].description, graph.groups[name].pending[rank].op


def _without_dump(graph: _Graph) -> Iterator[Cause]:
    """Return the rank without a dump that explains all waits, if only one does, or is closest to the waiting ranks."""
    found: dict[int, tuple[bool, int]] = {}
    for rank in sorted({rank for wait in graph.waits.values() if not wait.finished for rank in wait.silent}):
        direct = [wait for wait in graph.waits.values() if rank in wait.silent and not (wait.missing or wait.finished)]
        first = {each for wait in direct for each in wait.waiting if graph.of_rank[each][0] == (wait.group, wait.seq)}
        if first and _explained(graph, rank) == len(graph.of_rank):
            found[rank] = (any(not wait.is_pair for wait in direct), len(first))
    best = max(found.values(), default=None)
    named = [rank for rank, score in found.items() if score == best]
    if len(named) == 1:
        (rank,) = named
        waits = (wait for wait in graph.waits.values() if rank in wait.silent and not wait.finished)
        yield _cause(rank, Reason.NO_DUMP, max(waits, key=lambda wait: len(wait.waiting)), sure=False)


def _explained(graph: _Graph, rank: int) -> int:
    """Return the number of waiting ranks that can wait for this one in the end.

    Another rank without a dump can wait in each operation in which members of its groups wait.
    """
    reached = {rank}
    waits = [wait for wait in graph.waits.values() if not wait.finished]
    while True:
        before = len(reached)
        for wait in waits:
            if ends := reached.intersection((*wait.missing, *wait.silent)):
                reached.update(wait.waiting)
                reached |= {each for each in wait.silent if ends != {each}}
            elif not (wait.missing or wait.silent) and not reached.isdisjoint(wait.waiting):
                reached.update(wait.waiting)  # all have called it: the device of one of them is not there yet
        if len(reached) == before:
            return len(reached & graph.of_rank.keys())


def _widest_wait(graph: _Graph, rank: int) -> Wait | None:
    """Return the operation in which the largest number of ranks waits for this one, a collective if there is one."""
    waits = [wait for wait in graph.waits.values() if rank in wait.missing]
    return max(waits, key=lambda wait: (not wait.is_pair, len(wait.waiting)), default=None)


def _cause(rank: int, reason: Reason, wait: Wait, *, sure: bool) -> Cause:
    waiting = len(wait.finished) if reason is Reason.NOT_FINISHED else len(wait.waiting)
    return Cause(rank, reason, wait.description or wait.group, wait.op, waiting, sure)
