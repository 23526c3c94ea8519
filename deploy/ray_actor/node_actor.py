"""The actor of one node: it records sockets and workers, reads the GPUs, and writes to nothing.

The controller sends its configuration at each turn and gets a report.  A node actor without a controller exits after
some minutes.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.common.credentials import read_token_file
from deploy.common.logs import configure_logs
from deploy.node_agent.gpu.errors import GpuError
from deploy.node_agent.gpu.factory import DRIVERS, DriverName, DriverOptions, Simulation, node_of, open_gpus
from deploy.node_agent.gpu.interface import GpuDriver
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.gpu.reporting import report_of
from deploy.ray_actor.messages import GpuSource, NodeActorConfig, NodeReport
from deploy.ray_actor.workers import RayWorkers
from deploy.telemetry.folder import RecordingFolder
from deploy.telemetry.inbox import LateInbox
from deploy.telemetry.peers import Peers
from deploy.telemetry.recorder import Recorder, Sink
from deploy.telemetry.sender import Sender
from deploy.telemetry.sockets import SocketSource
from deploy.telemetry.sources import Source
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from fleet.errors import FleetwrightError, UnknownNameError
from fleet.gpus import builtin_gpus

HELD_S = 1.0  # as `fleetwright faults record` has it
DEFAULT_GPU: Final = "H100-SXM"
FULL_CLOCK: Final = 1.0  # a node actor has no guard and sets no clock
OpenDriver = Callable[..., GpuDriver]
ORPHANED_S: Final = 600.0
CHECK_S: Final = 10.0  # between two checks for a controller


class NodeRecording:
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
        self.tally = self._recorder.tally
        self._thread = threading.Thread(target=self._recorder.run, args=(self._stop,), name="record", daemon=True)
        self._thread.start()

    def failures(self) -> Mapping[str, int]:
        return {**self.tally.failures, **self._malformed.counts()}

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _inbox(self, config: NodeActorConfig, *, period_s: float) -> list[Source]:
        if config.settings.inbox is None:
            return []
        return [LateInbox(config.settings.inbox, job_map=_places(config), tally=self._malformed, period_s=period_s)]


def gpus_of(config: NodeActorConfig, *, open_driver: OpenDriver = open_gpus) -> GpuNode | None:
    """Return None where there is no GPU to read.  Raise GpuError where there is one and no driver responds."""
    if config.settings.gpus is GpuSource.NONE or config.gpus < 1:
        return None
    gpus = (
        _simulated(config, open_driver) if config.settings.gpus is GpuSource.SIMULATED else _first_driver(open_driver)
    )
    return node_of(gpus, acting=False, state_file=None, safe_share=FULL_CLOCK)


class NodeActor:
    """Records on one node; the controller calls `tend`."""

    def __init__(self, node_id: str) -> None:
        configure_logs(level="WARNING")
        self._node_id = node_id
        self._config: NodeActorConfig | None = None
        self._recording: NodeRecording | None = None
        self._gpus: GpuNode | None = None
        self._message: str | None = None
        self._contact_s = time.monotonic()
        self._closed = threading.Event()
        threading.Thread(target=self._end_when_orphaned, name="orphan", daemon=True).start()

    def tend(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._contact_s = time.monotonic()
        config = NodeActorConfig.model_validate(payload)
        if config != self._config:
            self._begin(config)
        return self._report(config).model_dump(mode="json")

    def close(self) -> None:
        """End the work; the process stays."""
        self._closed.set()
        if self._recording is not None:
            self._recording.close()
            self._recording = None
        self._end_gpus()
        self._config = None

    def _begin(self, config: NodeActorConfig) -> None:
        """Start with another configuration; a source that fails is reported, and the others work."""
        before, self._config, problems = self._config, config, []
        if self._recording is not None:
            self._recording.close()
            self._recording = None
        try:
            self._recording = NodeRecording(config, raylet_pid=os.getppid())
        except (OSError, FleetwrightError) as error:
            problems.append(f"cannot record: {error}")
        if before is None or _gpu_settings(before) != _gpu_settings(config):
            self._end_gpus()
        try:
            if self._gpus is None and (found := gpus_of(config)) is not None:
                self._gpus = found
                found.start()
        except FleetwrightError as error:
            problems.append(f"no GPU telemetry: {error}")
        self._message = "; ".join(problems) or None

    def _report(self, config: NodeActorConfig) -> NodeReport:
        recording, gpus = self._recording, self._gpus
        return NodeReport(
            node_id=self._node_id,
            node_name=config.node_name,
            index=config.index,
            pid=os.getpid(),
            polls=recording.tally.polls if recording else 0,
            observations=recording.tally.observations if recording else 0,
            failures=recording.failures() if recording else {},
            peers=len(config.peers),
            workers=recording.workers.reports if recording else (),
            workers_left_out=recording.workers.left_out if recording else 0,
            gpus=report_of(gpus, server=config.node_name).model_dump(mode="json") if gpus else None,
            message=self._message,
        )

    def _end_gpus(self) -> None:
        if self._gpus is not None:
            self._gpus.stop()
            self._gpus = None

    def _end_when_orphaned(self) -> None:
        while time.monotonic() - self._contact_s < ORPHANED_S:
            if self._closed.wait(CHECK_S):
                return
        self.close()
        os._exit(0)


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
        max_held=max(1, round(HELD_S / period_s)),
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


def _simulated(config: NodeActorConfig, open_driver: OpenDriver) -> GpuDriver:
    return open_driver(DriverName.SIMULATED, DriverOptions(simulation=_simulation(config)))


def _first_driver(open_driver: OpenDriver) -> GpuDriver:
    reasons = []
    for name in (name for name, driver in DRIVERS.items() if driver.in_band):
        try:
            return open_driver(name, DriverOptions())
        except GpuError as error:
            reasons.append(f"{name}: {error}")
    raise GpuError("; ".join(reasons))


def _simulation(config: NodeActorConfig) -> Simulation:
    """Simulate boards of the type in Ray's label, if the catalogue has it."""
    try:
        board = builtin_gpus().get(config.accelerator or DEFAULT_GPU).name
    except UnknownNameError:
        board = DEFAULT_GPU
    return Simulation(server=config.node_name, board=board, count=config.gpus, seed=config.index)


def _gpu_settings(config: NodeActorConfig) -> tuple[object, ...]:
    return config.settings.gpus, config.gpus, config.accelerator, config.node_name
