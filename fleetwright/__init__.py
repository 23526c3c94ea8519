"""Fleetwright for Python: the SDK, and the code that runs inside training jobs and inference engines.

    from fleetwright import Client                     the HTTP API; AsyncClient for asyncio
    from fleetwright import behind_router              the router as the ingress of a Ray Serve application
    from fleetwright.collectives import watch          record a rank's collectives
    from fleetwright.ray_train import WatchWorkers     the same for all workers of a Ray Train job
    from fleetwright.expert_rollout import MapReplica  a Serve deployment whose expert maps change in turn
    from fleetwright.engines.replica_clock import ReplicaClock

The subpackages import the standard library, numpy and their host (Ray, torch, vLLM), and nothing else of Fleetwright.
So they work in a process that has its own packages named `api` or `deploy`.  The clients and `behind_router` need
Fleetwright's other packages and are imported on first use.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from api.client import GPUS, MODELS, OFFERS, TOPOLOGY, ApiError, AsyncClient, Client
    from deploy.router.serve_app import behind_router

__all__ = ["GPUS", "MODELS", "OFFERS", "TOPOLOGY", "ApiError", "AsyncClient", "Client", "behind_router"]

_CLIENT_NEEDS = ("api", "planner", "placement", "power", "faults", "fleet")
_ROUTER_NEEDS = ("deploy", *_CLIENT_NEEDS)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    is_router = name == "behind_router"
    if (found := _shadowed(_ROUTER_NEEDS if is_router else _CLIENT_NEEDS)) is not None:
        raise ImportError(f"fleetwright.{name}: {found}")
    # On first use, which spares the jobs and engines that import a subpackage.
    if is_router:
        from deploy.router.serve_app import behind_router  # noqa: PLC0415 - see above

        return behind_router
    import api.client  # noqa: PLC0415 - see above

    return getattr(api.client, name)


def _shadowed(needed: tuple[str, ...]) -> str | None:
    """Return the first package of Fleetwright that another one on sys.path hides."""
    ours = Path(__file__).resolve().parents[1]
    for package in needed:
        spec = find_spec(package)
        places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or package])
        if [Path(place).resolve() for place in places] != [ours / package]:
            other = f"{places[0]} hides it" if places else "it is not installed"
            return (
                f"needs Fleetwright's package {package!r} in {ours}, but {other}. Start Python in another folder, or "
                "remove the other package's folder from PYTHONPATH."
            )
    return None
