"""Generated jobs: a ring of nodes with heartbeats, records and socket counters, and a fault.

They contain only data that the kernel and the ranks report.  Times are exact, so a test can check the detection time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from faults.detector import Job
from faults.observations import Collective, Heartbeat, Observation, Process, Socket, SocketPoll

STEP_S = 0.2
POLL_S = 0.25
BEAT_S = 0.5
STEP_BYTES = 1_000_000
IDLE = Socket(1, 0, 0, 0, 0, 0, 200, 100, 10, 0, 0, 0, 0, 0, 0, 0, 204_000, 0, 0)


@dataclass(frozen=True)
class Story:
    """A ring of `nodes` ranks that all-reduce every STEP_S and stop together at `stop_s`."""

    nodes: int = 4
    stop_s: float = 5.0  # no operation completes after this
    end_s: float = 20.0
    behind: int | None = None  # this rank never calls the operation in which the others wait
    phase: str = "compute"  # of the rank that is behind
    silent: int | None = None  # its heartbeat ends
    unread: int | None = None  # its node's sockets contain unread bytes
    stopped: int | None = None  # its process is in state T
    dead: tuple[tuple[int, int], ...] = ()  # directed links that lose everything
    gone: tuple[tuple[float, int], ...] = ()  # (when, node): its sockets vanish
    failed: tuple[tuple[float, int], ...] = ()  # (when, rank): its collective raises
    late_polls: Callable[[float], bool] = lambda _at_s: False  # polls that the machine is too busy for
    records: bool = True
    beats: bool = True
    goes_on: bool = False

    @property
    def job(self) -> Job:
        """The job before any observation."""
        return Job(self.nodes, tuple(range(self.nodes)))

    def but(self, **changes: object) -> "Story":
        """The same story with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def observations(self) -> list[Observation]:
        """All observations in the order in which they become known."""
        parts = [*self._polls(), *self._beats(), *self._records(), *self._processes()]
        return sorted(parts, key=lambda observation: observation.at_s)

    def _gone_s(self, node: int) -> float:
        return min((at_s for at_s, gone_node in self.gone if gone_node == node), default=float("inf"))

    def _steps(self, at_s: float) -> int:
        return int((at_s if self.goes_on else min(at_s, self.stop_s)) / STEP_S)

    def _entered(self, rank: int, at_s: float) -> int:
        steps = self._steps(at_s)
        waits = (at_s >= self.stop_s and not self.goes_on) and rank != self.behind
        return steps + waits

    def _records(self) -> Iterator[Observation]:
        if not self.records:
            return
        for seq in range(1, self._steps(self.end_s) + 1):
            at_s = seq * STEP_S
            for rank in range(self.nodes):
                done = Collective(seq, "all_reduce", STEP_BYTES, at_s - 0.05, at_s, seq - 1)
                yield Observation(at_s, rank, done, rank=rank)

    def _beats(self) -> Iterator[Observation]:
        if not self.beats:
            return
        for count in range(int(self.end_s / BEAT_S)):
            for rank in range(self.nodes):
                at_s = count * BEAT_S + 0.01 * rank
                quiet = rank == self.silent and at_s >= self.stop_s
                if quiet or at_s >= self._gone_s(rank):
                    continue
                steps, entered = self._steps(at_s), self._entered(rank, at_s)
                phase = self.phase if rank == self.behind and at_s >= self.stop_s else "comm"
                yield Observation(at_s, rank, Heartbeat(entered, steps, "all_reduce", steps, phase), rank=rank)
        for at_s, rank in self.failed:
            steps = self._steps(at_s)
            failed = Heartbeat(self._entered(rank, at_s), steps, "all_reduce", steps, "failed")
            yield Observation(at_s, rank, failed, rank=rank)

    def _processes(self) -> Iterator[Observation]:
        if self.stopped is None:
            return
        for count in range(int(self.end_s / POLL_S)):
            at_s = count * POLL_S
            state = "T" if at_s >= self.stop_s else "S"
            yield Observation(at_s, self.stopped, Process(1, state, 0.0), rank=self.stopped)

    def _polls(self) -> Iterator[Observation]:
        for count in range(int(self.end_s / POLL_S)):
            at_s = count * POLL_S
            if self.late_polls(at_s):
                continue
            for node in range(self.nodes):
                peers = [peer for peer in self._peers(node) if at_s < min(self._gone_s(node), self._gone_s(peer))]
                yield Observation(at_s, node, SocketPoll(len(peers)))
                for peer in peers:
                    yield Observation(at_s, node, self._socket(node, peer, at_s), peer=peer)

    def _peers(self, node: int) -> list[int]:
        return sorted({(node - 1) % self.nodes, (node + 1) % self.nodes} - {node})

    def _socket(self, node: int, peer: int, at_s: float) -> Socket:
        """The ring sends r -> r-1; notifications go the other way."""
        each = STEP_BYTES if peer == (node - 1) % self.nodes else 100
        back = STEP_BYTES if node == (peer - 1) % self.nodes else 100
        steps = self._steps(at_s)
        socket = IDLE._replace(acked_bytes=steps * each, received_bytes=steps * back)
        stopped_s = at_s - self.stop_s
        if stopped_s < 0 or self.goes_on:
            return socket
        if node == self.unread:
            socket = socket._replace(read_queue_bytes=96)
        ways = {(node, peer), (peer, node)} & set(self.dead)
        if ways:  # the acknowledgement is lost whichever direction is dead
            backoff = sum(stopped_s >= limit for limit in (0.2, 0.6, 1.4, 3.0, 6.2))
            socket = socket._replace(unacked=3, write_queue_bytes=3 * each // 100, backoff=backoff)
            if (peer, node) not in self.dead:  # the peer's data arrived
                socket = socket._replace(received_bytes=socket.received_bytes + 3 * back // 100)
        return socket
