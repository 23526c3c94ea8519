"""A Ray Serve application for the tests: the router before one deployment of engine doubles per name.

Ray Serve imports this module inside the cluster; `import_path` of an application names `build`.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

from ray import serve

from deploy.router.serve_app import behind_router
from deploy.router.settings import RouterSettings
from fleetwright.serve import Part, stream_response
from tests.deploy.router.engine import Engine

SMALL_ACTOR: Final[dict[str, Any]] = {"num_cpus": 0.1}


class Served:
    """One replica of an engine."""

    def __init__(self, name: str) -> None:
        self._app = Engine(name)

    async def answer_openai(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[Part]:
        """The method that the router calls."""
        async for part in stream_response(self._app, method, target, headers, body):
            yield part


def build(args: dict[str, Any]) -> Any:
    """From `{"engines": [names], "settings": {...}}`."""
    engines = {name: _engine(name) for name in args["engines"]}
    settings = RouterSettings.model_validate(args.get("settings", {}))
    return behind_router(engines, settings=settings, ray_actor_options=SMALL_ACTOR, graceful_shutdown_wait_loop_s=0.1)


def _engine(name: str) -> Any:
    return serve.deployment(
        Served,
        name=name,
        max_ongoing_requests=200,
        ray_actor_options=SMALL_ACTOR,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=60.0,
    ).bind(name)
