"""The recorder of a node actor: sockets where peers have different addresses, workers, reports of ranks."""

import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from deploy.common.token_file import read_token_file
from deploy.ray_actor.messages import NodeActorConfig
from deploy.ray_actor.workers import RayWorkers
from deploy.telemetry.folder import RecordingFolder
from deploy.telemetry.inbox import LateInbox
from deploy.telemetry.peers import Peers
from deploy.telemetry.recorder import Recorder, RecorderStats, Sink
from deploy.telemetry.sender import Sender
from deploy.telemetry.sockets import SocketSource
from deploy.telemetry.sources import Source
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap

HELD_S = 1.0  # as `fleetwright faults record` has it


class NodeRecording:
    """Records from construction until `close`."""

    def __init__(self, config: NodeActorConfig, *, raylet_pid: int) -> None:
        self._malformed = ParseErrors()
        self._stop = threading.Event()
        period_s = 1.0 / config.settings.hz
        self.workers = RayWorkers(
            node=config.index, slots=config.settings.ranks_per_node, raylet_pid=raylet_pid, period_s=period_s
        )
        self._recorder = Recorder(
            sockets=_sockets(config, period_s=period_s) if config.peers else None,
            sources=[self.workers, *self._inbox(config, period_s=period_s)],
            sinks=_sinks(config),
            period_s=period_s,
        )
        self._thread = threading.Thread(target=self._recorder.run, args=(self._stop,), name="record", daemon=True)
        self._thread.start()

    @property
    def tally(self) -> RecorderStats:
        return self._recorder.tally

    def failures(self) -> Mapping[str, int]:
        return {**self.tally.failures, **self._malformed.counts()}

    def close(self) -> None:
        """Write out what was recorded."""
        self._stop.set()
        self._thread.join()

    def _inbox(self, config: NodeActorConfig, *, period_s: float) -> list[Source]:
        if config.settings.inbox is None:
            return []
        return [LateInbox(config.settings.inbox, job_map=_places(config), tally=self._malformed, period_s=period_s)]


def _places(config: NodeActorConfig) -> JobMap:
    """Return the job's map: ranks fill the nodes one after another."""
    nodes = 1 + max(config.index, *config.peers.values(), 0)
    per_node = config.settings.ranks_per_node
    return JobMap(nodes, tuple(rank // per_node for rank in range(nodes * per_node)), hosts=config.peers)


def _sockets(config: NodeActorConfig, *, period_s: float) -> SocketSource:
    ignored = set(config.ignored_ports)
    if config.settings.send is not None and (port := urlsplit(config.settings.send).port) is not None:
        ignored.add(port)
    return SocketSource(
        node=config.index,
        peers=Peers(config.peers),
        ignored_ports=frozenset(ignored),
        most_held=max(1, round(HELD_S / period_s)),
    )


def _sinks(config: NodeActorConfig) -> list[Sink]:
    settings, sinks = config.settings, list[Sink]()
    if settings.folder is not None:
        places = _places(config)
        run = {
            "n": len(places.rank_node),
            "t_go": time.time(),
            "sample_hz": settings.hz,
            "rank_node": list(places.rank_node),
        }
        sinks.append(RecordingFolder(settings.folder, run=run, held_s=HELD_S))
    if settings.send is not None:
        token = read_token_file(settings.send_token_file) if settings.send_token_file else None
        sinks.append(Sender(settings.send, node=config.index, token=token))
    return sinks
