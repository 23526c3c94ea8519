"""Ray Train v2: every worker under watch, without a line in the training function.

    RunConfig(callbacks=[WatchWorkers(to="unix:/run/fleetwright/inbox")])

Ray calls back on its controller when a group of workers stands and torch's process group with it, also after a restart
or a replaced replica (ray.train.v2, 2.60).  Workers need this package; where torch is missing they train unwatched.
"""

import logging
from typing import Any

from ray.train.v2._internal.execution.callback import ReplicaGroupCallback, WorkerGroupCallback

from deploy.collectives.torch_ops import watch

log = logging.getLogger(__name__)


def watch_here(to: str | None, heartbeat_s: float) -> str:
    """In a worker; says what came of it."""
    try:
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - the worker's
    except ImportError:
        return "no torch"
    if not dist.is_available() or not dist.is_initialized():
        return "no process group"
    return "watched" if watch(dist, to=to, heartbeat_s=heartbeat_s).active else "nowhere to write to"


class WatchWorkers(ReplicaGroupCallback, WorkerGroupCallback):  # type: ignore[misc]
    """A callback for `ray.train.RunConfig(callbacks=[...])`."""

    def __init__(self, *, to: str | None = None, heartbeat_s: float = 0.5) -> None:
        self._to, self._heartbeat_s = to, heartbeat_s

    def after_execution_group_start(self, execution_group: Any) -> None:
        """All workers are ready; a failure here is told and forgotten."""
        try:
            found = execution_group.execute(watch_here, self._to, self._heartbeat_s)
        except Exception:
            log.exception("workers are not watched")
            return
        log.info("workers: %s", ", ".join(sorted(set(found))))
