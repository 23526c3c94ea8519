"""`serve` and `migrate`: errors at start in one line; schema upgrades and downgrades."""

import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.testbed.cli import COMMAND, Cli, Done, Shell
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.server import ADMIN_TOKEN, StartServer

PASSWORD = "a-secret-password"
ONLY_ONE = "allowed: one server of an SQLite file"


@pytest.fixture
def database(tmp_path: Path) -> Mapping[str, str]:
    """The setting that names an SQLite database which does not exist yet."""
    return {"FLEETWRIGHT_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"}


@pytest.fixture
def serve(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """`serve` in this process, for what ends before it listens."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str | Path, **environment: str) -> Done:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return cli("serve", *args)

    return run


class TestServe:
    def test_a_port_in_use_is_reported(self, serve: Shell, database: Mapping[str, str]) -> None:
        with socket.create_server((LOOPBACK, 0)) as taken:
            port = taken.getsockname()[1]
            done = serve("--port", str(port), **database)
        assert (done.code, done.refused) == (2, [f"cannot listen on {LOOPBACK} port {port}: Address already in use"])

    def test_an_address_of_another_host_is_reported(self, serve: Shell, database: Mapping[str, str]) -> None:
        done = serve("--host", "192.0.2.1", **database)
        assert (done.code, done.refused) == (
            2,
            ["cannot listen on 192.0.2.1 port 8400: Cannot assign requested address"],
        )

    @pytest.mark.parametrize("option", ["--insecure-no-auth", "--anonymous-read"])
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
    def test_disabled_authentication_requires_a_loopback_host(self, option: str, host: str, cli: Cli) -> None:
        done = cli("serve", option, "--host", host)
        assert done.code == 2
        (line,) = done.refused
        assert "allowed only with a loopback host" in line
        assert host in line

    def test_an_invalid_option_is_reported(self, cli: Cli) -> None:
        done = cli("serve", "--port", "70000")
        message = "settings: --port: input should be less than or equal to 65535, got 70000"
        assert (done.code, done.refused) == (2, [message])

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("PORT", "70000", "settings: FLEETWRIGHT_PORT: input should be less than or equal to 65535"),
            ("PORT", "web", "settings: FLEETWRIGHT_PORT: input should be a valid integer"),
            ("LOG_LEVEL", "LOUD", "settings: FLEETWRIGHT_LOG_LEVEL: string should match pattern"),
            ("RATE_LIMIT_PER_S", "0", "settings: FLEETWRIGHT_RATE_LIMIT_PER_S: input should be greater than 0"),
        ],
    )
    def test_an_invalid_setting_is_reported(
        self, name: str, value: str, message: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(f"FLEETWRIGHT_{name}", value)
        done = cli("serve")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(message)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("BOOTSTRAP_TOKEN_FILE", "/nowhere/token", "bootstrap_token_file: /nowhere/token cannot be read"),
            ("DATABASE_URL", f"nonsense {PASSWORD}", "database_url: not a database URL; allowed: sqlite"),
            ("DATABASE_URL", f"mysql://u:{PASSWORD}@h/d", "database_url: driver 'mysql'; allowed: sqlite"),
            ("DATABASE_URL", "sqlite+aiosqlite://", "database_url: an in-memory SQLite loses"),
        ],
    )
    def test_an_unusable_setting_is_reported_without_its_password(
        self, name: str, value: str, message: str, serve: Shell
    ) -> None:
        done = serve(**{f"FLEETWRIGHT_{name}": value})
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(message)
        assert PASSWORD not in line

    def test_a_second_server_on_one_sqlite_file_is_refused(
        self, serve: Shell, start_server: StartServer, database: Mapping[str, str]
    ) -> None:
        url = database["FLEETWRIGHT_DATABASE_URL"]
        first = start_server(url)
        done = serve(**database)
        assert done.code == 1
        (line,) = done.refused
        assert line.endswith(f"fleetwright.db: another server uses it (process {first.process.pid}); {ONLY_ONE}")
        with first.client() as client:
            assert client.check_audit().intact
        first.kill()
        with start_server(url).client() as client:
            assert client.check_audit().intact

    def test_serve_reports_a_file_that_is_not_a_database(
        self, serve: Shell, database: Mapping[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "fleetwright.db").write_text("not a database " * 100)
        done = serve(**database)
        assert done.code == 1
        (line,) = done.refused
        assert line.endswith("fleetwright.db: (sqlite3.DatabaseError) file is not a database")

    def test_a_token_file_without_a_valid_token_is_refused(
        self, serve: Shell, database: Mapping[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text(PASSWORD)
        done = serve(FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE=str(tmp_path / "token"), **database)
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith("bootstrap_token_file: ")
        assert PASSWORD not in line

    def test_serve_prints_its_url_and_the_first_token_once_and_ends_on_a_signal(
        self, bare_environment: Mapping[str, str], database: Mapping[str, str], tmp_path: Path
    ) -> None:
        environment = {**bare_environment, **database}
        stdout, stderr = serve_once(signal.SIGINT, environment, tmp_path, code=130)
        (url,) = re.findall(r"Fleetwright listens on (http://127\.0\.0\.1:\d+)\n", stdout)
        assert f"Try:  curl -H 'Authorization: Bearer TOKEN' {url}/v1/gpus\n" in stdout
        (token,) = re.findall(r"fw_[0-9a-z]{12}_\S{43}", stderr)
        assert token not in stdout
        assert "Traceback" not in stderr

        again = serve_once(signal.SIGTERM, environment, tmp_path, code=-signal.SIGTERM)
        assert "fw_" not in "".join(again)
        assert "Traceback" not in "".join(again)

    def test_a_given_bootstrap_token_is_not_printed(
        self, bare_environment: Mapping[str, str], database: Mapping[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text(ADMIN_TOKEN)
        environment = {**bare_environment, **database, "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE": str(tmp_path / "token")}
        shown = serve_once(signal.SIGTERM, environment, tmp_path, code=-signal.SIGTERM)
        assert ADMIN_TOKEN.split("_")[2] not in "".join(shown)


def serve_once(which: signal.Signals, environment: Mapping[str, str], directory: Path, *, code: int) -> tuple[str, str]:
    """Serve until the URL is printed, send a signal, and return the output."""
    errors = directory / "stderr"
    argv = [*COMMAND, "serve", "--port", "0"]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            argv, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            printed = process.stdout.readline() + process.stdout.readline()
            process.send_signal(which)
            assert process.wait(timeout=60) == code, errors.read_text()
        finally:
            process.kill()
    return printed, errors.read_text()


class TestMigrate:
    @pytest.fixture(autouse=True)
    def settings(self, monkeypatch: pytest.MonkeyPatch, database: Mapping[str, str]) -> None:
        for name, value in database.items():
            monkeypatch.setenv(name, value)

    def test_the_schema_is_upgraded_downgraded_and_upgraded_again(self, cli: Cli) -> None:
        before = cli("migrate", "status", "--format", "json")
        assert before.code == 1
        up = cli("migrate", "up", "--format", "json").json
        assert up["revision"] == up["needed"]
        status = cli("migrate", "status")
        assert (status.code, status.stdout) == (0, f"the schema is at {up['needed']}, as this program needs it\n")
        down = cli("migrate", "down", "base", "--yes", "--drop-audit")
        assert down.stdout == f"the schema is at nothing, this program needs {up['needed']}\n"
        assert cli("migrate", "status").code == 1
        assert cli("migrate", "up").code == 0

    @pytest.mark.parametrize(
        ("direction", "reason"),
        [("up", "Can't locate revision identified by 'nonsense'"), ("down", "No such revision or branch 'nonsense'")],
    )
    def test_an_unknown_revision_is_refused(self, direction: str, reason: str, cli: Cli) -> None:
        cli("migrate", "up")
        done = cli("migrate", direction, "nonsense")
        assert done.code == 2
        (line,) = done.refused
        assert line.endswith(f"fleetwright.db: {reason}")

    def test_a_downgrade_needs_a_confirmation_and_names_what_it_undoes(self, cli: Cli) -> None:
        head = cli("migrate", "up", "--format", "json").json["revision"]
        unconfirmed = cli("migrate", "down", "--", "-1")
        assert unconfirmed.code == 2
        assert unconfirmed.refused == [f"Undo {head}? Their data is lost. Answer with --yes where nobody can be asked."]
        assert cli("migrate", "status").code == 0
        assert cli("migrate", "down", "--yes", "--", "-1").code == 0
        assert cli("migrate", "status").code == 1

    def test_dropping_the_audit_needs_an_option_of_its_own(self, cli: Cli) -> None:
        cli("migrate", "up")
        done = cli("migrate", "down", "base", "--yes")
        assert done.code == 2
        assert done.refused == ["REVISION: base drops every table, the audit too; allowed: with --drop-audit"]
        assert cli("migrate", "status").code == 0

    def test_down_requires_a_revision(self, cli: Cli) -> None:
        done = cli("migrate", "down")
        assert (done.code, done.refused) == (2, ["missing argument 'REVISION'; see fleetwright migrate down --help"])

    def test_migrate_reports_a_file_that_is_not_a_database(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "fleetwright.db").write_text("not a database " * 100)
        for command in (("migrate", "up"), ("migrate", "status")):
            done = cli(*command)
            assert done.code == 1
            (line,) = done.refused
            assert line.startswith(f"database sqlite+aiosqlite:///{tmp_path}/fleetwright.db: ")
            assert line.endswith("file is not a database")

    def test_a_database_in_a_missing_folder_is_reported(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", "sqlite+aiosqlite:////nowhere/fleetwright.db")
        done = cli("migrate", "up")
        assert (done.code, done.refused) == (
            1,
            ["database sqlite+aiosqlite:////nowhere/fleetwright.db: the database does not respond"],
        )

    def test_an_unreachable_database_is_reported_without_its_password(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (port,) = free_ports(1)
        url = f"postgresql+psycopg://someone:{PASSWORD}@{LOOPBACK}:{port}/fleet?password={PASSWORD}"
        monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", url)
        done = cli("migrate", "status")
        assert (done.code, done.refused) == (
            1,
            [f"database postgresql+psycopg://{LOOPBACK}:{port}/fleet: the database does not respond"],
        )
