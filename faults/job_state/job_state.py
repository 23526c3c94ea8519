"""The job state that the hang and crash detectors read."""

from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite
from statistics import median
from typing import Any

from faults.detector import Job
from faults.job_state.groups import PAIR, RAS_PREFIX, RESTART_S, GroupProgress, Pending, ranks_of
from faults.job_state.pairs import PairTraffic
from faults.job_state.ranks import RankProgress
from faults.observations import (
    Collective,
    DeviceCounter,
    FlightProgress,
    Heartbeat,
    Observation,
    OperationCounts,
    Process,
    Socket,
    SocketPoll,
)

STEPS_KEPT = 64
SEQS_OPEN = 32
LATE_KEPT = 512
KEPT_EVENTS = 8
GAP_DECAY = 0.999  # per heartbeat: at two a second the longest gap halves in about six minutes
GROUPS_KEPT = 65_536


class Pace:
    """The step time of the job, which scales the limits, and the delay of its last ranks: one survived is no hang."""

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._late_s: deque[float] = deque(maxlen=LATE_KEPT)
        self._step: dict[int, tuple[int, float]] = {}
        self._arrivals: dict[tuple[str, int], list[float]] = {}
        self._median: float | None = None

    def stepped(self, rank: int, step: int, at_s: float) -> None:
        before = self._step.get(rank)
        if before is None or step < before[0]:
            self._step[rank] = (step, at_s)
        elif step > before[0]:
            self._steps_s.append((at_s - before[1]) / (step - before[0]))
            self._step[rank] = (step, at_s)
            self._median = None

    def arrived(self, record: Collective, members: int) -> None:
        """Record that a rank has finished a collective; the delay of the last rank is known once all have."""
        key = (record.group, record.seq)
        came = self._arrivals.setdefault(key, [])
        came.append(record.arrived_s)
        if len(came) >= members:
            self._late_s.append(max(came) - median(came))
            del self._arrivals[key]
        elif len(self._arrivals) > SEQS_OPEN:
            del self._arrivals[next(iter(self._arrivals))]

    def restart(self) -> None:
        """Restart the operation numbers, which a new life repeats."""
        self._arrivals.clear()

    def step_s(self) -> float | None:
        if self._median is None and self._steps_s:
            self._median = median(self._steps_s)
        return self._median

    def latest_s(self) -> float:
        """Return the largest delay of a rank behind the median, over the newest finished collectives."""
        return max(self._late_s, default=0.0)


class NodeSamples:
    __slots__ = ("device_events", "peers", "sampled_s", "socketed_s", "vanished_s")

    def __init__(self) -> None:
        self.sampled_s: float | None = None
        self.peers = 0
        self.socketed_s: float | None = None  # the last sample with a socket
        self.vanished_s: float | None = None  # the first later sample without one
        self.device_events: deque[tuple[float, str]] = deque(maxlen=KEPT_EVENTS)

    def add_sample(self, at_s: float, peers: int) -> None:
        self.sampled_s, self.peers = at_s, peers
        if peers:
            self.socketed_s, self.vanished_s = at_s, None
        elif self.socketed_s is not None and self.vanished_s is None:
            self.vanished_s = at_s


class JobState:
    """The state of a job, from observations in the order in which they became known."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.nodes = tuple(NodeSamples() for _ in range(job.nodes))
        self.ranks = tuple(RankProgress(node) for node in job.rank_node)
        self.pairs: dict[tuple[int, int], PairTraffic] = {}
        self.stuck: set[tuple[int, int]] = (
            set()
        )  # pairs with unacknowledged or unread bytes that have not moved for a sample
        self.unread: set[tuple[int, int]] = set()
        self.groups: dict[str, GroupProgress] = {}
        self.recorded: set[str] = set()  # groups that the job's own records name
        self.dumped: set[int] = set()  # ranks with a Flight Recorder dump
        self.pace = Pace()
        self.progress_s: float | None = None  # last time that any rank finished an operation
        self.first_s: float | None = None
        self._ranks_on = _ranks_on(job)
        # By exact type: all kinds are final, and a lookup costs a tenth of functools.singledispatchmethod.
        self._takes: Mapping[type, Callable[[Any, Observation], None]] = {
            SocketPoll: self._socket_poll,
            Socket: self._socket,
            Heartbeat: self._heartbeat,
            Collective: self._collective,
            Process: self._process,
            FlightProgress: self._flight,
            OperationCounts: self._counts,
            DeviceCounter: self._device,
        }

    def observe(self, observation: Observation) -> None:
        """Add an observation; an observation of another job is ignored."""
        rank, node = observation.rank, observation.node
        if not isfinite(observation.at_s) or not 0 <= node < len(self.nodes):
            return
        if rank is not None and not 0 <= rank < len(self.ranks):
            return
        if self.first_s is None:
            self.first_s = observation.at_s
        take = self._takes.get(type(observation.values))
        if take is not None:  # the other kinds do not concern hangs and crashes
            take(observation.values, observation)

    def ranks_on(self, node: int) -> tuple[int, ...]:
        return self._ranks_on[node]

    def _socket_poll(self, values: SocketPoll, observation: Observation) -> None:
        self.nodes[observation.node].add_sample(observation.at_s, values.peers)

    def _socket(self, values: Socket, observation: Observation) -> None:
        if observation.peer is None or not 0 <= observation.peer < len(self.nodes):
            return
        key = (observation.node, observation.peer)
        pair = self.pairs.get(key)
        if pair is None:
            pair = self.pairs[key] = PairTraffic(observation.at_s, values)
        else:
            pair.observe(observation.at_s, values)
        (self.stuck.add if pair.stuck_samples > 1 else self.stuck.discard)(key)
        (self.unread.add if pair.unread_samples > 1 else self.unread.discard)(key)

    def _heartbeat(self, values: Heartbeat, observation: Observation) -> None:
        if observation.rank is None:
            return
        rank = self.ranks[observation.rank]
        if rank.restarted(observation.at_s, values):
            self._restart(observation.rank, observation.at_s - RESTART_S)
        before = rank.finished
        rank.beat(observation.at_s, values, fade=GAP_DECAY)
        if rank.records_s is None:
            self.pace.stepped(observation.rank, values.step, observation.at_s)
        if rank.finished > before:
            self._progressed(observation.at_s)

    def _collective(self, values: Collective, observation: Observation) -> None:
        if observation.rank is None:
            return
        rank, group = self.ranks[observation.rank], self._group(values.group)
        if group is None:
            return
        if values.arrived_s < rank.life_start_s:
            return
        self._restarted(group, observation.rank, values)
        rank.records_s = observation.at_s
        self.recorded.add(values.group)
        group.record_call(observation.at_s, observation.rank, values.seq, Pending(values.op, values.arrived_s))
        if not values.group:
            rank.record_call(observation.at_s, values.seq)
        if values.finished_s is None:
            return
        group.record_finish(observation.at_s, observation.rank, values.seq, finished_s=values.finished_s)
        self.pace.arrived(values, len(group.members))
        if values.step is not None:
            self.pace.stepped(observation.rank, values.step, values.finished_s)
        if not values.group:
            rank.record_finish(observation.at_s, values.seq)
        self._progressed(values.finished_s)

    def _process(self, values: Process, observation: Observation) -> None:
        if observation.rank is not None:
            self.ranks[observation.rank].process(observation.at_s, values)

    def _flight(self, values: FlightProgress, observation: Observation) -> None:
        group = self._group(values.group)
        if observation.rank is None or group is None:
            return
        rank = observation.rank
        self.dumped.add(rank)
        if values.ranks is not group.listed:  # large groups list their ranks in each dump
            group.members.update(each for each in values.ranks if 0 <= each < len(self.ranks))
            group.listed = values.ranks
        group.description = group.description or values.description
        is_new_life = values.group not in self.recorded and values.entered < group.finished.get(rank, -1)
        if is_new_life or PAIR in values.group:  # the numbers of a pair begin again with each dump
            group.reset(rank)
        group.record_call(observation.at_s, rank, values.entered, Pending(values.op, values.since_s))
        group.finished[rank] = max(values.finished, group.finished.get(rank, -1))
        if values.started >= 0:
            group.started[rank] = values.started
        if values.called_s is not None:
            group.called_s[rank] = values.called_s

    def _counts(self, values: OperationCounts, observation: Observation) -> None:
        group = self._group(f"{RAS_PREFIX}{values.group}")
        if observation.rank is None or group is None:
            return
        if values.state == "dead":
            rank = self.ranks[observation.rank]
            rank.gone_s = rank.gone_s or observation.at_s
        if not values.ops:  # a rank without data
            group.members.add(observation.rank)
            return
        called = sum(count for _, count in values.ops)
        if called < group.finished.get(observation.rank, -1):
            group.reset(observation.rank)
        if called > group.entered.get(observation.rank, -1):
            # RAS counts calls, not ends: a called operation has ended once the counts move.
            group.finished[observation.rank] = max(called - 1, 0)
        group.record_call(observation.at_s, observation.rank, called, Pending(None, observation.at_s))

    def _device(self, values: DeviceCounter, observation: Observation) -> None:
        if values.name in ("xid", "ecc-double", "nvlink"):
            event = f"{values.name} {values.code} on {values.gpu}"
            self.nodes[observation.node].device_events.append((observation.at_s, event))

    def _restarted(self, group: GroupProgress, rank: int, record: Collective) -> None:
        if not group.restarted(rank, record.seq, arrived_s=record.arrived_s):
            return
        if record.group:
            group.reset(rank)
            self.pace.restart()
        else:
            self._restart(rank, record.arrived_s)

    def _restart(self, index: int, at_s: float) -> None:
        """Restart the stall clock of a restarted rank at its restart."""
        self.ranks[index].restart(at_s)
        if whole := self.groups.get(""):
            whole.reset(index)
        self.pace.restart()
        self._progressed(at_s)

    def _progressed(self, at_s: float) -> None:
        self.progress_s = at_s if self.progress_s is None else max(at_s, self.progress_s)

    def _group(self, name: str) -> GroupProgress | None:
        found = self.groups.get(name)
        if found is None and len(self.groups) < GROUPS_KEPT:
            found = self.groups[name] = GroupProgress(set(self._members(name)))
        return found

    def _members(self, name: str) -> tuple[int, ...]:
        if not name:
            return tuple(range(len(self.ranks)))
        if not name.isdigit() and (ranks := ranks_of(name, below=len(self.ranks))):
            return ranks
        index = int(name) if name.isascii() and name.isdigit() and len(name) < 8 else len(self.job.groups)
        return self.job.groups[index] if index < len(self.job.groups) else ()


def _ranks_on(job: Job) -> tuple[tuple[int, ...], ...]:
    on: list[list[int]] = [[] for _ in range(job.nodes)]
    for rank, node in enumerate(job.rank_node):
        on[node].append(rank)
    return tuple(tuple(ranks) for ranks in on)
