"""The actor that has a controller: one of a name and generation, detached, started again by Ray whenever it ends.

Its loop begins when the actor does, so a restart needs nobody: after a crash it waits for the lease of the one that
crashed, which nobody gave back, and goes on.
"""

import os
import signal
import time
from importlib.metadata import version
from typing import Any

from deploy.common.logs import configure_logs
from deploy.ray_actor.cluster import RayCluster, own_place
from deploy.ray_actor.controller_work import ControllerWork
from deploy.ray_actor.loop_thread import LoopThread
from deploy.ray_actor.messages import HostReport, HostSettings
from deploy.ray_actor.names import HostName
from deploy.ray_actor.node_supervisor import Keeper


class ControllerHost:
    """What is called by name from outside: `status`, `stop`, `resume`."""

    def __init__(self, name: str, generation: int, told: dict[str, Any]) -> None:
        configure_logs(level="INFO")
        self._settings = HostSettings.model_validate(told)
        self._place = own_place()
        self._work = ControllerWork(self._settings)
        self._loop = LoopThread(self._work.run)
        self._keeper = Keeper(
            HostName(name, generation),
            cluster=RayCluster(self._place.namespace),
            settings=self._settings.watch,
            own_node_id=self._place.node_id,
            leave=self._leave,
        )
        self.resume()

    def status(self) -> dict[str, Any]:
        """What it is, and what it has done since its process began."""
        done = self._work.progress()
        age_s = None if done.last_round_s is None else time.monotonic() - done.last_round_s
        report = HostReport(
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
        """End the loop well: the lease is given back.  The actor stays, and can be told to resume."""
        self._keeper.stop()
        self._loop.stop()
        return self.status()

    def resume(self) -> dict[str, Any]:
        """Begin, or go on after a stop; again does no harm."""
        self._loop.start()
        self._keeper.start()
        return self.status()

    def _leave(self) -> None:
        """End here, so that Ray begins it again on another node: only what was not meant to end is started again."""
        self._loop.stop()
        os.kill(os.getpid(), signal.SIGKILL)
