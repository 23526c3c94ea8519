"""Tests the PostgreSQL server of the tests: an empty database for each, no loss when killed, no process left."""

import secrets
import signal
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tests.testbed.nested import run_pytest
from tests.testbed.postgres import (
    BIN_VARIABLE,
    PostgresPrograms,
    PostgresServer,
    find_programs,
    running_postgres,
)
from tests.testbed.proc import descendants, listening_on, running_with_variable
from tests.testbed.processes import ProcessError
from tests.testbed.requirements import UnavailableError
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.postgres

MARK = "FLEETWRIGHT_TEST_MARK"
PLUGINS = ("tests.testbed.requirements", "tests.testbed.postgres")


@pytest.mark.parametrize("turn", ["first", "second"])
def test_each_test_gets_an_empty_database(turn: str, postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE turns (name text)"))  # fails if another test left its table
        connection.execute(sa.text("INSERT INTO turns VALUES (:name)"), {"name": turn})
        assert connection.execute(sa.text("SELECT name FROM turns")).scalars().all() == [turn]
    engine.dispose()


def test_the_databases_of_earlier_tests_are_dropped(postgres: PostgresServer, postgres_url: str) -> None:
    query = "SELECT datname FROM pg_database WHERE datname LIKE 'test%'"
    with psycopg.connect(postgres.url(scheme="postgresql")) as connection:
        assert connection.execute(query).fetchall() == [(make_url(postgres_url).database,)]


def test_a_wrong_password_is_refused(postgres_url: str) -> None:
    wrong = make_url(postgres_url).set(drivername="postgresql", password="wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong.render_as_string(hide_password=False))


def test_the_server_listens_on_loopback_only(postgres: PostgresServer) -> None:
    addresses = listening_on([postgres.pid, *descendants(postgres.pid)])
    assert addresses
    assert all(address.is_loopback for address in addresses)


def test_every_acknowledged_write_survives_a_killed_server(postgres_programs: PostgresPrograms, tmp_path: Path) -> None:
    with running_postgres(postgres_programs, log_dir=tmp_path, fsync=True) as server:
        url = server.url(scheme="postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            connection.execute("CREATE TABLE writes (number int)")
            for number in range(50):
                connection.execute("INSERT INTO writes VALUES (%s)", [number])
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(url)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT number FROM writes").fetchall() == [(number,) for number in range(50)]


def test_a_server_that_cannot_start_reports_its_log(
    postgres: PostgresServer, postgres_programs: PostgresPrograms, tmp_path: Path
) -> None:
    with running_postgres(postgres_programs, log_dir=tmp_path, fsync=False) as server:
        server.kill()
        server.port = postgres.port  # a port in use
        with pytest.raises(ProcessError, match="could not bind IPv4 address"):
            server.start()


def test_the_files_of_the_server_are_removed_at_the_end(postgres_programs: PostgresPrograms, tmp_path: Path) -> None:
    with running_postgres(postgres_programs, log_dir=tmp_path, fsync=False) as server:
        assert server.directory.exists()
    assert not server.directory.exists()


def test_no_process_or_file_survives_a_killed_test_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = secrets.token_hex()
    monkeypatch.setenv(MARK, mark)
    done = run_pytest(
        """
        import os, shutil, signal

        def test_killed(postgres, postgres_url):
            shutil.rmtree(postgres.directory)  # which a killed run leaves behind
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        folder=tmp_path,
        plugins=PLUGINS,
    )
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: running_with_variable(MARK, mark), lambda left: not left, what="end of every process")


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("postgres", "1 error")])
def test_without_postgres_the_fixture_reports_the_reason(required: str, outcome: str, tmp_path: Path) -> None:
    done = run_pytest(
        "def test_needs_it(postgres_url): pass",
        folder=tmp_path,
        plugins=PLUGINS,
        environment={"FLEETWRIGHT_REQUIRE": required, BIN_VARIABLE: "/nowhere"},
    )
    assert outcome in done.stdout
    assert f"{BIN_VARIABLE} is /nowhere, which lacks postgres or initdb" in done.stdout


def test_the_newest_installed_version_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    for version, programs in {"9.6": ["postgres", "initdb"], "15": ["postgres", "initdb"], "17": ["pg_dump"]}.items():
        bin_dir = tmp_path / version / "bin"
        bin_dir.mkdir(parents=True)
        for program in programs:
            (bin_dir / program).touch()
    assert find_programs(installed=tmp_path).bin_dir == tmp_path / "15" / "bin"


def test_without_apt_get_postgres_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "setpriv").touch(mode=0o755)  # only its presence is checked, and only as root
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(UnavailableError, match="there is no apt-get on PATH to get the package postgresql with"):
        find_programs(installed=tmp_path / "none", cache=tmp_path / "cache")
