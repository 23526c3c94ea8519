"""The replica's side of expert map rollouts in Ray Serve.

Derive a deployment from `MapReplica` and give it an engine (`LiveFile` or `FileThenRestart`).  The ingress reports the
maps of all replicas by `replica_statuses`.  The controller's side is `deploy.expert_rollout`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetwright.expert_rollout.engines import FileThenRestart, LiveFile
    from fleetwright.expert_rollout.messages import EngineShape
    from fleetwright.expert_rollout.serve_engine import MapReplica, replica_statuses

_MODULES = {
    "EngineShape": "messages",
    "FileThenRestart": "engines",
    "LiveFile": "engines",
    "MapReplica": "serve_engine",  # needs Ray
    "replica_statuses": "serve_engine",
}

__all__ = ["EngineShape", "FileThenRestart", "LiveFile", "MapReplica", "replica_statuses"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
