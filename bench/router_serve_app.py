"""Applications of Ray Serve for `router_on_serve`: the engine alone, behind an ingress that passes on, behind ours.

Ray Serve imports this module inside the cluster; its functions are what an application's `import_path` names.
"""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from ray import serve

from bench.router import WEIGHTS, Receive, Send, engine
from deploy.router.serve_app import behind_router
from fleetwright.serve import METHOD, Part, stream_response

LITTLE: Final[dict[str, Any]] = {"num_cpus": 0.1}
AT_ONCE: Final = 1000  # requests in one replica


class EngineReplica:
    """The engine, by HTTP from Serve's proxy and by handle from an ingress."""

    def __serve_build_asgi_app__(self) -> Any:
        return engine

    async def answer_openai(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[Part]:
        async for part in stream_response(engine, method, target, headers, body):
            yield part


class PassingReplica:
    """An ingress that decides nothing."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __serve_build_asgi_app__(self) -> Any:
        return Passing(self._behind.options(method_name=METHOD, stream=True))


@dataclass
class Passing:
    method: Any

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        parts = self.method.remote(scope["method"], scope["path"], list(scope["headers"]), message["body"])
        status, headers = await anext(parts)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def direct(_args: Mapping[str, Any]) -> Any:
    """The engine is the ingress."""
    return _deployment(EngineReplica, "Direct", serves_http=True).bind()


def passed(_args: Mapping[str, Any]) -> Any:
    """What an ingress of Serve costs that does nothing."""
    behind = _deployment(EngineReplica, "engine").bind()
    return _deployment(PassingReplica, "Passing", serves_http=True).bind(behind)


def routed(_args: Mapping[str, Any]) -> Any:
    engines = {name: _deployment(EngineReplica, name).bind() for name in WEIGHTS}
    return behind_router(engines, ray_actor_options=LITTLE)


def _deployment(replica: type, name: str, *, serves_http: bool = False) -> Any:
    ready = serve.ingress()(replica) if serves_http else replica
    return serve.deployment(ready, name=name, max_ongoing_requests=AT_ONCE, ray_actor_options=LITTLE)
