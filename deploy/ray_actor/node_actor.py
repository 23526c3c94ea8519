"""The actor of one node: it records sockets and workers, reads the GPUs, and writes to nothing.

The controller sends its configuration at each turn and gets a report.  A node actor without a controller exits after
some minutes.
"""

import os
import threading
import time
from typing import Any, Final

from deploy.common.logs import configure_logs
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.gpu.reporting import report_of
from deploy.ray_actor.messages import NodeActorConfig, NodeReport
from deploy.ray_actor.node_gpus import gpus_of
from deploy.ray_actor.recording import NodeRecording
from fleet.errors import FleetwrightError

ORPHANED_S: Final = 600.0
CHECK_S: Final = 10.0  # between two checks for a controller


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
        threading.Thread(target=self._end_when_orphaned, name="orphan", daemon=True).start()

    def tend(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Take a configuration and return a report."""
        self._contact_s = time.monotonic()
        config = NodeActorConfig.model_validate(payload)
        if config != self._config:
            self._begin(config)
        return self._report(config).model_dump(mode="json")

    def close(self) -> None:
        """Write out what was recorded and release everything."""
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
            looks=recording.tally.polls if recording else 0,
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
            time.sleep(CHECK_S)
        self.close()
        os._exit(0)


def _gpu_settings(config: NodeActorConfig) -> tuple[object, ...]:
    return config.settings.gpus, config.gpus, config.accelerator, config.node_name
