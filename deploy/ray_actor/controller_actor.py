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
    """Called by name from outside: `status`, `stop`, `resume`."""

    def __init__(self, name: str, generation: int, told: dict[str, Any]) -> None:
        configure_logs(level="INFO")
        self._settings = ControllerActorSettings.model_validate(told)
        self._place = own_placement()
        self._work = ControllerWork(self._settings)
        self._loop = LoopThread(self._work.run)
        self._keeper = NodeSupervisor(
            ControllerName(name, generation),
            cluster=RayCluster(self._place.namespace),
            settings=self._settings.watch,
            own_node_id=self._place.node_id,
            leave=self._leave,
        )
        self.resume()

    def status(self) -> dict[str, Any]:
        """The state of the controller since its process started."""
        done = self._work.progress()
        age_s = None if done.last_round_s is None else time.monotonic() - done.last_round_s
        report = ControllerReport(
            version=version("fleetwright"),
            state=self._loop.state,
            standing=done.role.value,
            holder=self._work.holder,
            pid=os.getpid(),
            node_id=self._place.node_id,
            restarted=self._place.restarted,
            since=done.since,
            rounds=done.rounds,
            rounds_failed=done.rounds_failed,
            last_round_age_s=age_s,
            error=self._loop.error,
            settings=self._settings.model_dump(mode="json"),
            watchers=self._keeper.reports,
        )
        return report.model_dump(mode="json")

    def stop(self) -> dict[str, Any]:
        """End the loop and release the lease.  The actor stays, and `resume` starts the loop again."""
        self._keeper.stop()
        self._loop.stop()
        return self.status()

    def resume(self) -> dict[str, Any]:
        """Start the loop where it does not run."""
        self._loop.start()
        self._keeper.start()
        return self.status()

    def _leave(self) -> None:
        """End this process, so that Ray starts the actor on another node: Ray restarts only what ended unexpectedly."""
        self._loop.stop()
        os.kill(os.getpid(), signal.SIGKILL)
