"""The router as a process of its own, before engines on HTTP.

Its table is a file, looked at every second: whoever replaces the file (a mounted ConfigMap, an editor, `mv`) swaps the
weights.  A file that cannot be used is told of once, and the table before it stays.
"""

import asyncio
import socket
from pathlib import Path

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from pydantic import Field, ValidationError, model_validator

from deploy.common.clock import Clock
from deploy.common.errors import PlanUnusableError
from deploy.router.metrics_backend import OfProcess
from deploy.router.over_http import HttpUpstream
from deploy.router.router import Router
from deploy.router.settings import RouterSettings, Url, WattsFrom
from deploy.router.table import RouteName, RoutingTable
from fleet.documents import Frozen, RuleError

log = structlog.get_logger()

LOOK_S = 1.0
LONGEST_ANSWER_S = 900


class RouterFile(Frozen):
    """Everything that the router's process is told."""

    engines: dict[RouteName, tuple[Url, ...]] = Field(
        min_length=1, max_length=100, description="Deployment, as the table's routes name it -> its replicas."
    )
    table_file: Path
    settings: RouterSettings = RouterSettings()
    watts: WattsFrom | None = None
    silence_s: float = Field(default=600.0, gt=0, le=86_400, description="Between two parts of an answer.")

    @model_validator(mode="after")
    def _has_addresses(self) -> "RouterFile":
        RuleError.raise_for(
            (("engines", name), "allowed: at least one address") for name, urls in self.engines.items() if not urls
        )
        return self


class TableFile:
    """The table as the file has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = b""

    def read(self) -> RoutingTable:
        """As it is now; raises OSError or ValidationError."""
        self._seen = self._path.read_bytes()
        return RoutingTable.model_validate_json(self._seen)

    def changed(self) -> RoutingTable | None:
        """Another table than the last one read; a bad one is raised once."""
        return None if self._path.read_bytes() == self._seen else self.read()


async def follow(router: Router, file: TableFile, *, clock: Clock) -> None:
    """Take what the file has, until cancelled."""
    missing = False
    while True:
        await clock.sleep(LOOK_S)
        try:
            table = file.changed()
            missing = False
            if table is not None:
                router.take(table)
        except OSError as error:
            if not missing:
                log.warning("table_not_readable", reason=str(error))
            missing = True
        except (ValidationError, PlanUnusableError) as error:
            if isinstance(error, ValidationError):
                router.metrics.table_refused()
            log.warning("table_refused", reason=str(error))


async def run_router(
    config: RouterFile, listener: socket.socket, *, registry: CollectorRegistry, clock: Clock | None = None
) -> None:
    """Serve until told to end, and then until what is in flight has its answer."""
    clock, file = clock or Clock(), TableFile(config.table_file)
    router = Router(
        table=file.read(),
        upstreams={name: HttpUpstream(name, urls, silence_s=config.silence_s) for name, urls in config.engines.items()},
        settings=config.settings,
        instruments=OfProcess(registry),
        clock=clock,
    )
    router.hold(config.watts)
    following = asyncio.create_task(follow(router, file, clock=clock))
    try:
        await _server(router).serve(sockets=[listener])
    finally:
        following.cancel()


def _server(router: Router) -> uvicorn.Server:
    config = uvicorn.Config(
        router,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the engine's passes
        timeout_graceful_shutdown=LONGEST_ANSWER_S,
    )
    return uvicorn.Server(config)
