"""Training jobs that stop because of one rank, executed operation by operation, and the dumps that their ranks leave.

A job has four kinds of parallelism: tensor, context, pipeline (one forward, one backward) and data, with the experts
spread over data parallel ranks.  Each rank has a program of calls and waits.  Its processor calls ahead of its device
by at most `run_ahead` waits; its device executes the calls in order, and a wait holds it until the operation ends.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any, Final

CALL_S: Final = 20e-6
OPERATION_S: Final = 300e-6
START_NS: Final = 1_750_000_000_000_000_000
# The axes of the grid (tensor, context, data, pipeline) along which a group extends; of an expert group, a part of one.
AXES: Final[Mapping[str, frozenset[int]]] = {
    "world": frozenset({0, 1, 2, 3}),
    "data": frozenset({1, 2}),
    "context": frozenset({1}),
    "model": frozenset({0, 3}),
    "tensor": frozenset({0}),
    "pipeline": frozenset({3}),
    "expert": frozenset(),
}
DESCRIPTIONS: Final[Mapping[str, str]] = {
    "world": "default_pg",
    "data": "DATA_PARALLEL_GROUP_WITH_CP",
    "context": "CONTEXT_PARALLEL_GROUP",
    "model": "MODEL_PARALLEL_GROUP",
    "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
    "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
    "expert": "EXPERT_MODEL_PARALLEL_GROUP",
}


class Stop(StrEnum):
    """How the rank at fault stops."""

    PROCESSOR = "processor"  # it calls nothing more; what it has called goes on
    DEVICE = "device"  # it starts nothing more; calls run ahead
    ERROR = "error"  # its operations are no longer marked as finished, and soon it calls nothing more
    DEAD = "dead"  # as PROCESSOR, and it leaves no dump


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    tensor: int
    context: int
    data: int
    pipeline: int
    expert: int  # of the data parallel ranks
    microbatches: int
    layers: int
    run_ahead: int
    prefetch: bool  # whether a rank posts the receive of the next microbatch early

    @property
    def ranks(self) -> int:
        return self.tensor * self.context * self.data * self.pipeline


@dataclass(slots=True, eq=False)
class Operation:
    group: str
    kind: str
    members: tuple[int, ...]
    called_s: dict[int, float] = field(default_factory=dict)
    ready_s: dict[int, float] = field(default_factory=dict)
    done_s: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    operation: Operation


@dataclass(frozen=True, slots=True)
class WaitFor:
    operation: Operation


Item = Call | WaitFor


@dataclass(slots=True)
class _Rank:
    program: list[Item] = field(default_factory=list)
    called: int = 0  # items that the processor has passed
    executed: int = 0  # items that the device has passed
    processor_s: float = 0.0
    device_s: float = 0.0
    last_call: int = 1 << 62
    last_start: int = 1 << 62
    last_mark: int = 1 << 62  # operations called from here on are not marked as finished
    ahead: int = 0  # waits that the processor has passed and the device has not


class StoppedJob:
    def __init__(self, shape: Shape, *, steps: int = 2) -> None:
        self.shape = shape
        self.groups: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.ranks = [_Rank() for _ in range(shape.ranks)]
        self._shared: dict[tuple[Any, ...], Operation] = {}
        self._names: dict[tuple[str, tuple[int, ...]], str] = {}
        self._create_groups()
        for rank, state in enumerate(self.ranks):
            for step in range(steps):
                state.program.extend(self._step(rank, step))

    def _grid(self, rank: int) -> tuple[int, int, int, int]:
        shape = self.shape
        tensor, rest = rank % shape.tensor, rank // shape.tensor
        context, rest = rest % shape.context, rest // shape.context
        return tensor, context, rest % shape.data, rest // shape.data

    def _rank(self, tensor: int, context: int, data: int, pipeline: int) -> int:
        shape = self.shape
        return ((pipeline * shape.data + data) * shape.context + context) * shape.tensor + tensor

    def _members(self, rank: int, dimension: str) -> tuple[int, ...]:
        place, shape = self._grid(rank), self.shape
        extents = (shape.tensor, shape.context, shape.data, shape.pipeline)
        along = [
            range(extent) if axis in AXES[dimension] else range(place[axis], place[axis] + 1)
            for axis, extent in enumerate(extents)
        ]
        if dimension == "expert":
            first = place[2] // shape.expert * shape.expert
            along[2] = range(first, first + shape.expert)
        return tuple(sorted(self._rank(*each) for each in product(*along)))

    def _create_groups(self) -> None:
        for dimension, description in DESCRIPTIONS.items():
            for rank in range(self.shape.ranks):
                members = self._members(rank, dimension)
                if (dimension, members) not in self._names:
                    name = self._names[dimension, members] = str(len(self.groups))
                    self.groups[name] = (description, members)

    def _step(self, rank: int, step: int) -> Iterator[Item]:
        shape, stage = self.shape, self._grid(rank)[3]
        warm_up = min(shape.microbatches, shape.pipeline - stage - 1)
        order = [("forward", number) for number in range(warm_up)]
        for number in range(shape.microbatches - warm_up):
            order += [("forward", warm_up + number), ("backward", number)]
        order += [("backward", number) for number in range(shape.microbatches - warm_up, shape.microbatches)]
        posted: set[int] = set()
        for index, (way, number) in enumerate(order):
            receive = self._transfer(rank, step, way, number, to_here=True)
            if receive is not None:
                if index not in posted:
                    yield Call(receive)
                later = index + 1
                if shape.prefetch and later < len(order):
                    following = self._transfer(rank, step, *order[later], to_here=True)
                    if following is not None:
                        posted.add(later)
                        yield Call(following)
                yield WaitFor(receive)
            for layer in range(shape.layers):
                for dimension, kind in (
                    ("tensor", "_all_gather_base"),
                    ("context", "_all_gather_base"),
                    ("expert", "all_to_all"),
                    ("tensor", "_reduce_scatter_base"),
                ):
                    yield from self._collective(rank, dimension, kind, (step, way, number, layer, kind))
            send = self._transfer(rank, step, way, number, to_here=False)
            if send is not None:
                yield Call(send)
        for dimension, kind in (
            ("data", "_reduce_scatter_base"),
            ("model", "all_reduce"),
            ("data", "_all_gather_base"),
        ):
            yield from self._collective(rank, dimension, kind, (step, "end", kind))

    def _collective(self, rank: int, dimension: str, kind: str, key: tuple[Any, ...]) -> Iterator[Item]:
        members = self._members(rank, dimension)
        if len(members) > 1:
            operation = self._operation(self._names[dimension, members], kind, members, key)
            yield Call(operation)
            yield WaitFor(operation)

    def _transfer(self, rank: int, step: int, way: str, number: int, *, to_here: bool) -> Operation | None:
        t, c, d, stage = self._grid(rank)
        forward = 1 if way == "forward" else -1
        other = stage - forward if to_here else stage + forward
        if not 0 <= other < self.shape.pipeline:
            return None
        sender, receiver = (other, stage) if to_here else (stage, other)
        name = self._names["pipeline", self._members(rank, "pipeline")]
        members = (self._rank(t, c, d, sender), self._rank(t, c, d, receiver))
        return self._operation(name, f"{sender}->{receiver}", members, (step, way, number, sender))

    def _operation(self, group: str, kind: str, members: tuple[int, ...], key: tuple[Any, ...]) -> Operation:
        found = self._shared.get((group, *key))
        if found is None:
            found = self._shared[group, *key] = Operation(group, kind, members)
        return found

    def stop(self, rank: int, how: Stop, *, after: float) -> None:
        """Stop a rank after this share of its program."""
        state = self.ranks[rank]
        item = int(after * len(state.program))
        if how is Stop.DEVICE:
            state.last_start = item
        elif how is Stop.ERROR:
            state.last_mark = item
            collectives = 0
            while item < len(state.program) and collectives < 6:
                each = state.program[item]
                collectives += isinstance(each, Call) and "->" not in each.operation.kind
                item += 1
            state.last_call = item
        else:
            state.last_call = item

    def run(self) -> None:
        todo = deque(range(len(self.ranks)))
        queued = set(todo)
        while todo:
            rank = todo.popleft()
            queued.discard(rank)
            for other in self._advance(rank):
                if other not in queued:
                    queued.add(other)
                    todo.append(other)

    def _advance(self, rank: int) -> Iterator[int]:
        while True:
            before = self.ranks[rank].called, self.ranks[rank].executed
            self._call(rank)
            yield from self._execute(rank)
            if before == (self.ranks[rank].called, self.ranks[rank].executed):
                return

    def _call(self, rank: int) -> None:
        state = self.ranks[rank]
        while state.called < min(state.last_call, len(state.program)):
            item = state.program[state.called]
            if isinstance(item, Call):
                state.processor_s += CALL_S
                item.operation.called_s[rank] = state.processor_s
            elif item.operation.done_s is not None and not self.shape.run_ahead:
                state.processor_s = max(state.processor_s, item.operation.done_s)
                state.ahead += 1
            elif state.ahead < self.shape.run_ahead:
                state.ahead += 1
            else:
                return
            state.called += 1

    def _execute(self, rank: int) -> Iterator[int]:
        state = self.ranks[rank]
        while state.executed < min(state.called, state.last_start):
            operation = state.program[state.executed].operation
            if isinstance(state.program[state.executed], Call):
                operation.ready_s[rank] = max(state.device_s, operation.called_s[rank])
                if len(operation.ready_s) == len(operation.members):
                    operation.done_s = max(operation.ready_s.values()) + OPERATION_S
                    yield from operation.members
            elif operation.done_s is None:
                return
            else:
                state.device_s = max(state.device_s, operation.done_s)
                state.processor_s = max(state.processor_s, state.device_s - self.shape.run_ahead * OPERATION_S)
                state.ahead -= 1
            state.executed += 1

    def dump(
        self, rank: int, *, entries: int, timed: bool, only_active: bool, skew_s: float, batched: bool = False
    ) -> dict[str, Any]:
        """Return the dump of a rank as Flight Recorder writes it.

        Of `batched` sends and receives, only the entry of the batch has a state.
        """
        state = self.ranks[rank]
        counts: dict[tuple[str, bool], int] = defaultdict(int)
        enqueued: dict[str, int] = defaultdict(int)
        completed: dict[str, int] = defaultdict(int)
        own = sorted((name for name, (_, members) in self.groups.items() if rank in members), key=int)
        numbers = {name: index + index // 2 for index, name in enumerate(own)}
        found: list[dict[str, Any]] = []
        for index, item in enumerate(state.program[: state.called]):
            if not isinstance(item, Call):
                continue
            operation = item.operation
            pairwise = "->" in operation.kind
            counts[operation.group, pairwise] += 1
            done = operation.done_s is not None and index < state.last_mark
            enqueued[operation.group] += 1
            completed[operation.group] += done
            if done and only_active:
                continue
            is_started = timed and rank in operation.ready_s and index < state.last_mark
            entry = {
                "record_id": len(found),
                "pg_id": numbers[operation.group],
                "process_group": [operation.group, self.groups[operation.group][0]],
                "collective_seq_id": counts[operation.group, False],
                "p2p_seq_id": counts[operation.group, True],
                "op_id": index,
                "profiling_name": f"nccl:{_name(operation, rank)}",
                "time_created_ns": _ns(operation.called_s[rank] + skew_s),
                "input_sizes": [[4096, 1, 5120]],
                "output_sizes": [[4096, 1, 5120]],
                "state": "completed" if done else "started" if is_started else "scheduled",
                "time_discovered_started_ns": _ns(operation.ready_s[rank] + skew_s) if is_started else None,
                "time_discovered_completed_ns": _ns(operation.done_s + skew_s) if done and operation.done_s else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": pairwise,
            }
            if pairwise and batched:
                times = dict.fromkeys(("time_discovered_started_ns", "time_discovered_completed_ns"))
                found.append(entry | times | {"state": "scheduled", "retired": False})
                entry |= {"profiling_name": "nccl:coalesced"}
            found.append(entry)
        return {
            "version": "2.9",
            "pg_config": {
                name: {"name": name, "desc": self.groups[name][0], "ranks": str(list(self.groups[name][1]))}
                for name in own
            },
            "pg_status": {
                str(numbers[name]): {
                    "last_enqueued_collective": enqueued[name],
                    "last_started_collective": -1,
                    "last_completed_collective": completed[name],
                }
                for name in own
            },
            "entries": found[-entries:],
        }


def _ns(at_s: float) -> int:
    return START_NS + int(at_s * 1e9)


def _name(operation: Operation, rank: int) -> str:
    if "->" not in operation.kind:
        return operation.kind
    sender, receiver = operation.kind.split("->")
    return f"send {sender}->{receiver}" if rank == operation.members[0] else f"recv {receiver}<-{sender}"
