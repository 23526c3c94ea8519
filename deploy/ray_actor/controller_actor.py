"""The actor that runs a controller: detached, named by name and generation, restarted by Ray whenever it ends.

Its loop starts with the actor, so a restart needs no command: after a crash the controller waits until the lease of the
crashed one expires, and continues.
"""

import os
import signal
import time
from importlib.metadata import version
from typing import Any

from deploy.common.logs import configure_logs
from deploy.ray_actor.cluster import RayCluster, own_placement
from deploy.ray_actor.controller_work import ControllerWork
from deploy.ray_actor.loop_thread import LoopThread
from deploy.ray_actor.messages import ControllerActorSettings, ControllerReport
from deploy.ray_actor.names import ControllerName
from deploy.ray_actor.node_supervisor import NodeSupervisor


class ControllerActor:
    """Serves `status`, `stop` and `resume` calls by name from outside."""

    def __init__(self, name: str, generation: int, settings: dict[str, Any]) -> None:
        configure_logs(level="INFO")
        self._settings = ControllerActorSettings.model_validate(settings)
        self._place = own_placement()
        self._work = ControllerWork(self._settings)
        self._loop = LoopThread(self._work.run)
        self._supervisor = NodeSupervisor(
            ControllerName(name, generation),
            cluster=RayCluster(self._place.namespace),
            settings=self._settings.watch,
            own_node_id=self._place.node_id,
            leave=self._exit,
        )
        self.resume()

    def status(self) -> dict[str, Any]:
        """Return the state of the controller since its process started."""
        progress = self._work.progress()
        age_s = None if progress.last_round_s is None else time.monotonic() - progress.last_round_s
        report = ControllerReport(
            version=version("fleetwright"),
            state=self._loop.state,
            standing=progress.role.value,
            holder=self._work.holder,
            pid=os.getpid(),
            node_id=self._place.node_id,
            restarted=self._place.restarted,
            since=progress.since,
            rounds=progress.rounds,
            rounds_failed=progress.rounds_failed,
            last_round_age_s=age_s,
            error=self._loop.error,
            settings=self._settings.model_dump(mode="json"),
            watchers=self._supervisor.reports,
        )
        return report.model_dump(mode="json")

    def stop(self) -> dict[str, Any]:
        """End the loop and release the lease.  The actor stays, and `resume` starts the loop again."""
        self._supervisor.stop()
        self._loop.stop()
        return self.status()

    def resume(self) -> dict[str, Any]:
        """Start the loop where it does not run."""
        self._loop.start()
        self._supervisor.start()
        return self.status()

    def _exit(self) -> None:
        """End this process, so that Ray starts the actor on another node: Ray restarts only what ended unexpectedly."""
        self._loop.stop()
        os.kill(os.getpid(), signal.SIGKILL)
