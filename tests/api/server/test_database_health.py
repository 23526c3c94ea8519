"""Readiness is honest: a database that takes reads only, or has a full disk, makes the service unready."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from api.client import Client
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.requirements import UnavailableError, skipping_where_unavailable
from tests.testbed.server import ADMIN_TOKEN, ROOT
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.anyio
OWN_DISK = 'mount -t tmpfs -o size=12m tmpfs "$0" && exec "$@"'


async def test_readiness_writes_at_most_every_ten_seconds(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = service.app.state.service.database_health
    attempts: list[float] = []
    write = health._failed_write

    async def counted() -> object:
        attempts.append(service.clock.elapsed_s)
        return await write()

    monkeypatch.setattr(health, "_failed_write", counted)
    async with service.client(None) as client:
        for _second in range(25):
            assert (await client.get("/readyz")).status_code == 200
            assert "fleetwright_database_writable 1.0" in (await client.get("/metrics")).text.splitlines()
            service.clock.advance(1.0)
    assert attempts == [0.0, 10.0, 20.0]


@pytest.mark.postgres
async def test_a_read_only_postgresql_makes_the_service_unready_until_it_takes_writes_again(
    start_service: StartService, migrated_postgres_url: str
) -> None:
    async with start_service(migrated_postgres_url) as running, running.client() as client:
        await running.first_token_stored()
        assert (await client.get("/readyz")).status_code == 200
        make_read_only(migrated_postgres_url, read_only="on")
        running.clock.advance(10.0)
        with capture_logs() as logged:
            unready = [await client.get("/readyz") for _ in range(3)]
            scrapes = [(await client.get("/metrics")).text.splitlines() for _ in range(3)]
            assert (await client.get("/v1/freeze")).status_code == 200
        make_read_only(migrated_postgres_url, read_only="off")
        running.clock.advance(1.0)
        assert (await client.get("/readyz")).status_code == 200
        assert "fleetwright_database_writable 1.0" in (await client.get("/metrics")).text.splitlines()
    assert [answer.status_code for answer in unready] == [503] * 3
    assert {answer.json()["type"] for answer in unready} == {"urn:fleetwright:problem:database-read-only"}
    assert all({"fleetwright_database_up 1.0", "fleetwright_database_writable 0.0"} <= set(each) for each in scrapes)
    causes = [entry["cause"] for entry in logged if entry["event"] == "database_failed"]
    assert causes == ["ReadOnlySqlTransaction 25006"] * 4  # of three requests, and once for all scrapes


def make_read_only(url: str, *, read_only: str) -> None:
    """Change it for new connections, and end the old ones."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {read_only}")
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def small_disk_service(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve from a disk of 12 MB; yield the URL and the folder as this process reaches it."""
    folder, token_file = tmp_path / "disk", tmp_path / "token"
    folder.mkdir()
    token_file.write_text(ADMIN_TOKEN)
    (port,) = free_ports(1)
    mount = ["unshare", "--mount", "sh", "-c", OWN_DISK, str(folder)]
    with skipping_where_unavailable("lab", what="a disk of its own"):
        if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
            raise UnavailableError("this machine lets us mount nothing")
    environment = {
        "PATH": os.environ["PATH"],
        "FLEETWRIGHT_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/fleetwright.db",
        "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE": str(token_file),
    }
    argv = [*mount, sys.executable, "-m", "api.cli", "serve", "--port", str(port), "--no-controller"]
    with Process.start(argv, name="serve", log_dir=tmp_path, env=environment, cwd=ROOT) as process:
        process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{port}/readyz"))
        yield f"http://{LOOPBACK}:{port}", Path(f"/proc/{process.pid}/root{folder}")


def test_a_full_disk_makes_the_service_unready_until_there_is_room(small_disk_service: tuple[str, Path]) -> None:
    url, folder = small_disk_service
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    unready = wait_for(lambda: httpx.get(f"{url}/readyz"), lambda got: got.status_code == 503, what="unready")
    assert unready.json()["type"] == "urn:fleetwright:problem:database-full"
    assert "fleetwright_database_writable 0.0" in httpx.get(f"{url}/metrics").text.splitlines()
    ballast.unlink()
    wait_for(lambda: httpx.get(f"{url}/readyz"), lambda got: got.status_code == 200, what="ready")
    with Client(url, token=ADMIN_TOKEN) as client:
        assert client.check_audit().intact
