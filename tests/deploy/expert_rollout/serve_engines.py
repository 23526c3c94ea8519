"""A Ray Serve application for the tests: the router before one deployment of engine doubles with expert maps.

Ray Serve imports this module inside the cluster; `build` is the application's `import_path`.  A restarting
double answers no request until it is up, and is up only when its replica has forwarded requests.  Each restart adds a
line to a file: replica, map, start and end.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

from ray import serve

from deploy.router.serve_app import behind_router
from deploy.router.settings import RouterSettings
from fleetwright.expert_rollout.engines import FileThenRestart, check_map_file
from fleetwright.expert_rollout.messages import EngineShape
from fleetwright.expert_rollout.serve_engine import MapReplica
from tests.deploy.router.engine import Engine, Message, Receive, Send

SMALL_ACTOR: Final[dict[str, Any]] = {"num_cpus": 0.1}
MIN_FORWARDED: Final = 2


class RestartedEngine:
    """The engine double behind a proxy that refuses requests while it restarts."""

    def __init__(self, name: str) -> None:
        self._engine = Engine(name)
        self.up = True

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if not self.up:
            raise RuntimeError("a request reached an engine that was not up")
        await self._engine(scope, receive, send)
        if not self.up:
            raise RuntimeError("the engine was stopped while it answered")


class MappedEngine(MapReplica):
    """A replica whose engine double loads expert maps."""

    def __init__(self, shape: dict[str, Any], folder: str) -> None:
        self._id = serve.get_replica_context().replica_id.unique_id
        self._folder = Path(folder)
        self._path = self._folder / f"map-{self._id}.json"
        self._app_of_engine = RestartedEngine(self._id)
        engine = FileThenRestart(
            self._path, shape=EngineShape(**shape), restart=self._restart, healthy=self._is_healthy, check=self._check
        )
        super().__init__(self._app_of_engine, engine)

    def _check(self, text: str) -> None:
        check_map_file(text, shape=EngineShape(**json.loads((self._folder / "real-shape.json").read_text())))

    async def _restart(self) -> None:
        began_s, before = time.monotonic(), self.forwarded
        self._app_of_engine.up = False
        while self.forwarded - before < MIN_FORWARDED:
            await asyncio.sleep(0.01)
        self._app_of_engine.up = True
        line = {"replica": self._id, "file": self._path.read_text(), "began_s": began_s, "ended_s": time.monotonic()}
        with (self._folder / "restarts.jsonl").open("a") as restarts:
            restarts.write(json.dumps(line) + "\n")

    async def _is_healthy(self) -> bool:
        return self._app_of_engine.up


def build(args: dict[str, Any]) -> Any:
    """From `{"engines": {name: replicas}, "shape": {...}, "folder": path}`."""
    engines = {
        name: serve.deployment(
            MappedEngine,
            name=name,
            num_replicas=replicas,
            max_ongoing_requests=200,
            ray_actor_options=SMALL_ACTOR,
            graceful_shutdown_wait_loop_s=0.1,
        ).bind(args["shape"], args["folder"])
        for name, replicas in args["engines"].items()
    }
    settings = RouterSettings(patience_s=60.0, expose_expert_maps=True)
    return behind_router(engines, settings=settings, ray_actor_options=SMALL_ACTOR, graceful_shutdown_wait_loop_s=0.1)
