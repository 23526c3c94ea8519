"""Simulates an inference service: a Ray Serve application with one deployment per GPU type behind one ingress.

Ray Serve imports this module inside the cluster; `build` is the application's `import_path`.  The deployments do no
inference: they return their place, which is all that placement, scaling and routing decide, or fail on request.
`GET /metrics` returns the number of requests by status.
"""

from typing import Any, Final

import ray
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

LITTLE: Final[dict[str, Any]] = {"num_cpus": 0.1}
QUICK: Final[dict[str, Any]] = {"graceful_shutdown_wait_loop_s": 0.1}  # the time until an idle replica stops


class Pool:
    """Runs replicas on one type of GPU, one GPU each."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def __call__(self) -> dict[str, str]:
        if self._fails:
            raise RuntimeError("this pool fails every request")
        replica = serve.get_replica_context()
        return {
            "pool": replica.deployment,
            "replica_id": replica.replica_id.unique_id,
            "node_id": ray.get_runtime_context().get_node_id(),
        }


class Ingress:
    """Forwards a request to the pool in its query: `GET /?pool=h100`."""

    def __init__(self, pools: dict[str, Any]) -> None:
        self._pools = pools
        self._registry = CollectorRegistry()
        self._requests = Counter("app_requests", "Answered", ["status"], registry=self._registry)
        for status in ("200", "500"):
            self._requests.labels(status)  # export zero before the first request

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/metrics":
            return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
        name = request.query_params.get("pool", "")
        if name not in self._pools:
            return JSONResponse({"detail": f"pool must be one of {', '.join(self._pools)}"}, status_code=422)
        try:
            response = JSONResponse(await self._pools[name].remote())
        except RuntimeError as error:
            response = JSONResponse({"detail": str(error)}, status_code=500)
        self._requests.labels(str(response.status_code)).inc()
        return response


def build(args: dict[str, Any]) -> Any:
    """Build the application from `{"pools": {deployment: accelerator type}, "failing": [deployment]}`."""
    failing = args.get("failing", ())
    pools = {name: _pool(name, accelerator, fails=name in failing) for name, accelerator in args["pools"].items()}
    return serve.deployment(Ingress, **QUICK, ray_actor_options=LITTLE).bind(pools)


def _pool(name: str, accelerator: str, *, fails: bool) -> Any:
    one_gpu = LITTLE | {"num_gpus": 1, "label_selector": {"ray.io/accelerator-type": accelerator}}
    return serve.deployment(Pool, name=name, **QUICK, ray_actor_options=one_gpu).bind(fails=fails)
