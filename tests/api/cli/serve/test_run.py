"""`serve` and `migrate`: what stops them before they start, in one line; the schema up, down and up again."""

import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.api.cli.conftest import COMMAND, Cli, Shell
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.server import ADMIN_TOKEN

PASSWORD = "not-to-be-seen"


@pytest.fixture
def database(tmp_path: Path) -> Mapping[str, str]:
    """The setting that names an SQLite database which does not exist yet."""
    return {"FLEETWRIGHT_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"}


class TestServe:
    def test_on_a_port_in_use(self, shell: Shell, database: Mapping[str, str]) -> None:
        with socket.create_server((LOOPBACK, 0)) as taken:
            port = taken.getsockname()[1]
            done = shell("serve", "--port", str(port), **database)
        assert (done.code, done.refused) == (2, [f"cannot listen on {LOOPBACK} port {port}: Address already in use"])

    def test_on_an_address_that_is_not_ours(self, shell: Shell, database: Mapping[str, str]) -> None:
        done = shell("serve", "--host", "192.0.2.1", **database)
        assert (done.code, done.refused) == (
            2,
            ["cannot listen on 192.0.2.1 port 8400: Cannot assign requested address"],
        )

    @pytest.mark.parametrize("option", ["--insecure-no-auth", "--anonymous-read"])
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
    def test_open_doors_only_on_loopback(self, option: str, host: str, cli: Cli) -> None:
        done = cli("serve", option, "--host", host)
        assert done.code == 2
        (line,) = done.refused
        assert "allowed only with a loopback host" in line
        assert host in line

    def test_with_a_wrong_option(self, cli: Cli) -> None:
        done = cli("serve", "--port", "70000")
        said = "settings: --port: input should be less than or equal to 65535, got 70000"
        assert (done.code, done.refused) == (2, [said])

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("PORT", "70000", "settings: FLEETWRIGHT_PORT: input should be less than or equal to 65535"),
            ("PORT", "web", "settings: FLEETWRIGHT_PORT: input should be a valid integer"),
            ("LOG_LEVEL", "LOUD", "settings: FLEETWRIGHT_LOG_LEVEL: string should match pattern"),
            ("RATE_LIMIT_PER_S", "0", "settings: FLEETWRIGHT_RATE_LIMIT_PER_S: input should be greater than 0"),
        ],
    )
    def test_with_a_wrong_setting(
        self, name: str, value: str, said: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(f"FLEETWRIGHT_{name}", value)
        done = cli("serve")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(said)

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("BOOTSTRAP_TOKEN_FILE", "/nowhere/token", "bootstrap_token_file: /nowhere/token cannot be read"),
            ("DATABASE_URL", f"nonsense {PASSWORD}", "database_url: not a database URL; allowed: sqlite"),
            ("DATABASE_URL", f"mysql://u:{PASSWORD}@h/d", "database_url: driver 'mysql'; allowed: sqlite"),
            ("DATABASE_URL", "sqlite+aiosqlite://", "database_url: an in-memory SQLite loses"),
        ],
    )
    def test_with_a_setting_that_leads_nowhere(self, name: str, value: str, said: str, shell: Shell) -> None:
        done = shell("serve", **{f"FLEETWRIGHT_{name}": value})
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(said)
        assert PASSWORD not in line

    def test_on_a_file_that_is_no_database(self, shell: Shell, database: Mapping[str, str], tmp_path: Path) -> None:
        (tmp_path / "fleetwright.db").write_text("not a database " * 100)
        done = shell("serve", **database)
        assert done.code == 1
        (line,) = done.refused
        assert line.endswith("fleetwright.db: (sqlite3.DatabaseError) file is not a database")

    def test_without_a_token_in_the_file_for_one(
        self, shell: Shell, database: Mapping[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text(PASSWORD)
        done = shell("serve", FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE=str(tmp_path / "token"), **database)
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith("bootstrap_token_file: ")
        assert PASSWORD not in line

    @pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
    def test_says_where_it_answers_shows_the_first_token_once_and_ends_when_told(
        self,
        which: signal.Signals,
        code: int,
        bare_environment: Mapping[str, str],
        database: Mapping[str, str],
        tmp_path: Path,
    ) -> None:
        stdout, stderr = serve_once(which, {**bare_environment, **database}, tmp_path, code=code)
        (url,) = re.findall(r"Fleetwright answers on (http://127\.0\.0\.1:\d+)\n", stdout)
        assert f"Try:  curl -H 'Authorization: Bearer TOKEN' {url}/v1/gpus\n" in stdout
        (token,) = re.findall(r"fw_[0-9a-z]{12}_\S{43}", stderr)
        assert token not in stdout
        assert "Traceback" not in stderr

        again = serve_once(which, {**bare_environment, **database}, tmp_path, code=code)
        assert "fw_" not in "".join(again)

    def test_a_token_that_was_brought_is_not_shown(
        self, bare_environment: Mapping[str, str], database: Mapping[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text(ADMIN_TOKEN)
        environment = {**bare_environment, **database, "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE": str(tmp_path / "token")}
        shown = serve_once(signal.SIGTERM, environment, tmp_path, code=-signal.SIGTERM)
        assert ADMIN_TOKEN.split("_")[2] not in "".join(shown)


def serve_once(which: signal.Signals, environment: Mapping[str, str], directory: Path, *, code: int) -> tuple[str, str]:
    """Serve until it says that it answers, end it by a signal, and answer what it wrote."""
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
            said = process.stdout.readline() + process.stdout.readline()
            process.send_signal(which)
            assert process.wait(timeout=60) == code, errors.read_text()
        finally:
            process.kill()
    return said, errors.read_text()


class TestMigrate:
    @pytest.fixture(autouse=True)
    def settings(self, monkeypatch: pytest.MonkeyPatch, database: Mapping[str, str]) -> None:
        for name, value in database.items():
            monkeypatch.setenv(name, value)

    def test_up_down_and_up_again(self, cli: Cli) -> None:
        before = cli("migrate", "status", "--format", "json")
        assert before.code == 1
        up = cli("migrate", "up", "--format", "json").json
        assert up["revision"] == up["needed"]
        status = cli("migrate", "status")
        assert (status.code, status.stdout) == (0, f"the schema is at {up['needed']}, as this program needs it\n")
        down = cli("migrate", "down", "base")
        assert down.stdout == f"the schema is at nothing, this program needs {up['needed']}\n"
        assert cli("migrate", "status").code == 1
        assert cli("migrate", "up").code == 0

    @pytest.mark.parametrize("direction", ["up", "down"])
    def test_to_a_revision_that_is_none(self, direction: str, cli: Cli) -> None:
        cli("migrate", "up")
        done = cli("migrate", direction, "nonsense")
        assert done.code == 2
        (line,) = done.refused
        assert line.endswith("fleetwright.db: Can't locate revision identified by 'nonsense'")

    def test_down_needs_to_be_told_how_far(self, cli: Cli) -> None:
        done = cli("migrate", "down")
        assert (done.code, done.refused) == (2, ["missing argument 'REVISION'; see fleetwright migrate down --help"])

    def test_a_file_that_is_no_database(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "fleetwright.db").write_text("not a database " * 100)
        for command in (("migrate", "up"), ("migrate", "status")):
            done = cli(*command)
            assert done.code == 1
            (line,) = done.refused
            assert line.startswith(f"database sqlite+aiosqlite:///{tmp_path}/fleetwright.db: ")
            assert line.endswith("file is not a database")

    def test_a_place_that_is_not_there(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", "sqlite+aiosqlite:////nowhere/fleetwright.db")
        done = cli("migrate", "up")
        assert (done.code, done.refused) == (
            1,
            ["database sqlite+aiosqlite:////nowhere/fleetwright.db: the database does not respond"],
        )

    def test_a_server_that_does_not_answer_without_its_password(
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
