"""Runs `fleetwright serve` as a process, for tests of real sockets, kills and clients."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.client import AsyncClient, Client, UnauthorizedError
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports

ROOT = Path(__file__).parent.parent.parent
ADMIN_TOKEN = f"fw_{'admin':0<12}_{'t' * 43}"


@dataclass(frozen=True, slots=True)
class Server:
    """Describes a serving process; all its parameters are fixed, so that it can be started again."""

    url: str
    process: Process

    def client(self) -> Client:
        return Client(self.url, token=ADMIN_TOKEN)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url, token=ADMIN_TOKEN)

    def kill(self) -> None:
        """Kill it without a shutdown, as a power cut does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.popen.wait()


StartServer = Callable[..., Server]


@contextmanager
def running_servers(folder: Path) -> Iterator[StartServer]:
    """Yield a function that starts `fleetwright serve` on a database; stop all servers at the end."""
    token_file = folder / "token"
    token_file.write_text(ADMIN_TOKEN)
    with ExitStack() as running:

        def start(
            database_url: str, *options: str, max_files: int | None = None, source: Path = ROOT, **settings: str
        ) -> Server:
            (port,) = free_ports(1)
            environment = {
                "PATH": os.environ["PATH"],
                "FLEETWRIGHT_DATABASE_URL": database_url,
                "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE": str(token_file),
                "FLEETWRIGHT_LOG_LEVEL": "WARNING",
            } | {f"FLEETWRIGHT_{name.upper()}": value for name, value in settings.items()}
            argv = [sys.executable, "-m", "api.cli", "serve", "--port", str(port), *options]
            if not database_url.startswith("sqlite") and "--no-worker" not in options and source == ROOT:
                argv.append("--worker")
            limit = [] if max_files is None else ["prlimit", f"--nofile={max_files}:{max_files}", "--"]
            process = Process.start(
                argv, name=f"serve-{port}", log_dir=folder, env=environment, cwd=source, prefix=limit
            )
            running.callback(process.stop)
            url = f"http://{LOOPBACK}:{port}"
            with Client(url, token=ADMIN_TOKEN) as client:
                process.wait_ready(lambda: answers_ok(f"{url}/readyz") and takes_token(client))
            return Server(url=url, process=process)

        yield start


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start the service as often as a test needs; all stop when the test ends."""
    with running_servers(tmp_path) as start:
        yield start


def takes_token(client: Client) -> bool:
    """Check the first token, which is stored a moment after the service is ready."""
    try:
        client.get_freeze()
    except UnauthorizedError:
        return False
    return True
