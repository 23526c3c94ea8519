"""The router as a process, before engines on HTTP.

It reads the file of its table again when the file changes (a mounted ConfigMap, an editor, `mv`).  An unusable file is
logged once, and the old table stays.
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
from deploy.router.metrics_backend import PrometheusBackend
from deploy.router.over_http import HttpUpstream
from deploy.router.router import Router
from deploy.router.settings import PowerSource, RouterSettings, Url
from deploy.router.table import RouteName, RoutingTable
from fleet.documents import Frozen, RuleError

log = structlog.get_logger()

TICK_S = 1.0
LONGEST_ANSWER_S = 900


class RouterFile(Frozen):
    """The configuration of the router's process."""

    engines: dict[RouteName, tuple[Url, ...]] = Field(
        min_length=1, max_length=100, description="Deployment, named as the table's routes -> URLs of its replicas."
    )
    table_file: Path
    settings: RouterSettings = RouterSettings()
    watts: PowerSource | None = None
    silence_s: float = Field(default=600.0, gt=0, le=86_400, description="Between two parts of a response.")

    @model_validator(mode="after")
    def _has_addresses(self) -> "RouterFile":
        RuleError.raise_for(
            (("engines", name), "allowed: at least one address") for name, urls in self.engines.items() if not urls
        )
        return self


class TableFile:
    """The file of the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = b""

    def read(self) -> RoutingTable:
        """Read the table.  Raise OSError or ValidationError."""
        self._seen = self._path.read_bytes()
        return RoutingTable.model_validate_json(self._seen)

    def changed(self) -> RoutingTable | None:
        """Return the table, if the file changed since it was read; an unusable file raises once."""
        return None if self._path.read_bytes() == self._seen else self.read()


async def follow(router: Router, file: TableFile, *, clock: Clock) -> None:
    """Apply every new table from the file, until cancelled."""
    missing = False
    while True:
        await clock.sleep(TICK_S)
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
    """Serve until SIGTERM, and then until every request in flight has its response."""
    clock, file = clock or Clock(), TableFile(config.table_file)
    router = Router(
        table=file.read(),
        upstreams={name: HttpUpstream(name, urls, silence_s=config.silence_s) for name, urls in config.engines.items()},
        settings=config.settings,
        backend=PrometheusBackend(registry),
        clock=clock,
    )
    router.set_power_source(config.watts)
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
        date_header=False,  # the engine's header is forwarded
        timeout_graceful_shutdown=LONGEST_ANSWER_S,
    )
    return uvicorn.Server(config)
