"""The replica's side of expert map rollouts in Ray Serve.

Derive a deployment from `MapReplica` and give it an engine (`LiveFile` or `FileThenRestart`).  The ingress reports the
maps of all replicas by `replica_statuses`.  The controller's side is `deploy.expert_rollout`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetwright.expert_rollout.engines import FileThenRestart, LiveFile
    from fleetwright.expert_rollout.messages import EngineShape
    from fleetwright.expert_rollout.serve_engine import MapReplica, replica_statuses

__all__ = ["EngineShape", "FileThenRestart", "LiveFile", "MapReplica", "replica_statuses"]


def __getattr__(name: str) -> Any:
    match name:
        case "EngineShape":
            from fleetwright.expert_rollout import messages  # noqa: PLC0415 - on first use, as the others

            return getattr(messages, name)
        case "FileThenRestart" | "LiveFile":
            from fleetwright.expert_rollout import engines  # noqa: PLC0415

            return getattr(engines, name)
        case "MapReplica" | "replica_statuses":
            from fleetwright.expert_rollout import serve_engine  # noqa: PLC0415 - needs Ray

            return getattr(serve_engine, name)
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
