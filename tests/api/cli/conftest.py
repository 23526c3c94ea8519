"""A service for the requests of the command line."""

import logging
from collections.abc import Iterator
from functools import partial

import pytest
import structlog

from api.client import Client
from api.server import Settings, create_app
from api.store import Migrations, Store
from tests.testbed.asgi import serving
from tests.testbed.cli import Cli
from tests.testbed.jobs import run_worker
from tests.testbed.logs import logging_put_back
from tests.testbed.server import ADMIN_TOKEN, takes_token
from tests.testbed.waiting import wait_for


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service with its own database, shared by the tests of a module.

    It listens on a real socket, but in a thread of this process: its start needs no imports.
    """
    directory = tmp_path_factory.mktemp("service")
    (directory / "token").write_text(ADMIN_TOKEN)
    url = f"sqlite+aiosqlite:///{directory}/fleetwright.db"
    migrations = Migrations(url)
    migrations.upgrade()
    app = create_app(
        settings=Settings(database_url=url, bootstrap_token_file=directory / "token"),
        store=Store(url),
        schema_head=migrations.head,
        show_first_token=lambda _: None,
    )
    with (
        logging_put_back(),
        serving(app, partial(run_worker, app)) as address,
        Client(address, token=ADMIN_TOKEN) as client,
    ):
        # Output of the commands is tested; it must not hold the log of the service.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        wait_for(lambda: takes_token(client), what="ready service")
        yield address


@pytest.fixture
def remote(cli: Cli, service: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line of an administrator of the service."""
    monkeypatch.setenv("FLEETWRIGHT_URL", service)
    monkeypatch.setenv("FLEETWRIGHT_TOKEN", ADMIN_TOKEN)
    return cli
