"""One node's recorder as a Ray actor: it observes the ranks of one attempt on its node and buffers its observations.

The run monitor fetches the buffer several times a second through Ray, without a port, an address or a secret.  A full
buffer drops the oldest observations.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.telemetry.batch_codec import MAX_OTHERS, MAX_POLLS, encode
from deploy.telemetry.diag import Sample
from deploy.telemetry.inbox import LateInbox
from deploy.telemetry.peers import Peers
from deploy.telemetry.processes import ProcessSource
from deploy.telemetry.recorder import Recorder
from deploy.telemetry.sockets import SocketSource
from deploy.telemetry.sources import Source
from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecorderSpec:
    node: int  # its index in the job
    nodes: int
    rank_node: tuple[int, ...]
    pid_of: Mapping[int, int]  # by rank, of this node
    address_of: Mapping[str, int]  # nodes by address; empty: connections are not polled
    inbox: str | None = None
    period_s: float = 0.25


class RecorderBuffer:
    """A sink that buffers the newest observations until they are fetched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=MAX_POLLS)
        self._others: deque[Observation] = deque(maxlen=MAX_OTHERS)

    def is_due(self) -> bool:
        return True

    def sample(self, sample: Sample) -> None:
        with self._lock:
            self._samples.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        with self._lock:
            self._others.extend(observations)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def taken(self) -> tuple[list[Sample], list[Observation]]:
        with self._lock:
            found = list(self._samples), list(self._others)
            self._samples.clear()
            self._others.clear()
        return found


class NodeRecorderActor:
    def __init__(self, spec: NodeRecorderSpec) -> None:
        self._spec, self._buffer, self._stop = spec, RecorderBuffer(), threading.Event()
        self._session, self._number = secrets.token_hex(4), 0
        recorder = Recorder(
            sockets=_sockets(spec), sources=_sources(spec), sinks=[self._buffer], period_s=spec.period_s
        )
        self._thread = threading.Thread(target=recorder.run, args=(self._stop,), name="recorder", daemon=True)
        self._thread.start()

    def take(self) -> bytes:
        samples, others = self._buffer.taken()
        self._number += 1
        body, _base = encode(
            samples,
            others,
            session=self._session,
            number=self._number,
            held=None,
            node=self._spec.node,
            sent_s=time.time(),
        )
        return body

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)


def _sockets(spec: NodeRecorderSpec) -> SocketSource | None:
    if not spec.address_of:
        return None
    return SocketSource(node=spec.node, peers=Peers(spec.address_of))


def _sources(spec: NodeRecorderSpec) -> list[Source]:
    sources: list[Source] = [ProcessSource(node=spec.node, pid_of=spec.pid_of, period_s=spec.period_s)]
    if spec.inbox is not None:
        places = JobMap(spec.nodes, spec.rank_node)
        sources.append(LateInbox(Path(spec.inbox), job_map=places, tally=ParseErrors(), period_s=spec.period_s))
    return sources
