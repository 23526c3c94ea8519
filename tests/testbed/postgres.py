"""Provides the `postgres` fixtures: a real PostgreSQL server on loopback, with a database for each test.

The programs are those of `FLEETWRIGHT_POSTGRES_BIN`, of PATH, or of Debian's installed package; else Debian's package
is unpacked into the cache.  PostgreSQL refuses to run as root, so root starts the server under an unprivileged account.
"""

import os
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import psycopg
import pytest
from psycopg import sql

from api.store import Migrations
from tests.testbed import debian
from tests.testbed.binaries import cache_root
from tests.testbed.proc import descendants, is_running
from tests.testbed.processes import LOOPBACK, Process, free_ports
from tests.testbed.requirements import UnavailableError, skipping_where_unavailable
from tests.testbed.waiting import wait_for

PACKAGE: Final = "postgresql"  # depends on the server package of the Debian release
BIN_VARIABLE: Final = "FLEETWRIGHT_POSTGRES_BIN"
DEBIAN_HOME: Final = Path("/usr/lib/postgresql")  # one directory per major version
ACCOUNTS: Final = ("postgres", "nobody")
OWNER: Final = "fleetwright"


@dataclass(frozen=True, kw_only=True)
class PostgresPrograms:
    """Names the directory of the server's programs, and the account that runs them."""

    bin_dir: Path
    account: pwd.struct_passwd | None = None  # None: the account of the tests
    tree: Path | None = None  # of the unpacked package, with libraries that the machine itself lacks

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of one program, run by `account`."""
        command = [str(self.bin_dir / program), *arguments]
        if self.tree is not None:
            command = ["env", f"LD_LIBRARY_PATH={':'.join(map(str, debian.libraries(self.tree)))}", *command]
        if self.account is not None:
            # A change of user clears the parent-death signal (prctl(2)); setpriv sets it again.
            ids = [f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, "--pdeathsig=KILL", *command]
        return command

    def copied(self, target: Path) -> Self:
        """Copy the package below `target`, because `account` may have no access to the cache."""
        if self.tree is None:
            return self
        shutil.copytree(self.tree, target, symlinks=True)
        return replace(self, tree=target, bin_dir=target / self.bin_dir.relative_to(self.tree))


@dataclass(kw_only=True)
class PostgresServer:
    """Runs one server; its data outlives its process, so it can be killed and started again."""

    programs: PostgresPrograms
    directory: Path
    log_dir: Path
    fsync: bool
    port: int = field(default_factory=lambda: free_ports(1)[0])
    password: str = field(default_factory=secrets.token_hex)
    _process: Process | None = field(default=None, init=False)

    def url(self, database: str = "postgres", *, scheme: str = "postgresql+psycopg") -> str:
        """Return the SQLAlchemy URL of a database; with scheme `postgresql` the one for psycopg."""
        return f"{scheme}://{OWNER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """Return the first process of a running server."""
        assert self._process is not None
        return self._process.pid

    def initialise(self) -> None:
        """Create the data directory; every connection needs the password."""
        password_path = self.directory / "password"
        password_path.write_text(self.password)
        arguments = ["--auth=scram-sha-256", f"--username={OWNER}", f"--pwfile={password_path}"]
        arguments += ["--encoding=UTF8", "--locale=C", "--no-sync", f"--pgdata={self._data}"]
        argv = self.programs.command("initdb", *arguments)
        done = subprocess.run(argv, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"initdb: {done.stderr.strip()}")

    def start(self) -> None:
        """Start the server on its data and wait until it responds."""
        settings = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": self.directory,
            "fsync": "on" if self.fsync else "off",
            "dynamic_shared_memory_type": "mmap",  # in the data directory: a killed server leaves nothing in /dev/shm
            "jit": "off",  # the JIT compiler is ten times as large as the server, and only long queries benefit
            "log_timezone": "UTC",
            "timezone": "UTC",
        }
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        argv = self.programs.command("postgres", "-D", str(self._data), *arguments)
        self._process = Process.start(argv, name="postgres", log_dir=self.log_dir, cwd=self.directory)
        self._process.wait_ready(self._responds)

    def kill(self) -> None:
        """Kill the server as `kill -9` does, without a checkpoint or a notice to its clients; wait for its end."""
        if self._process is None:
            return
        backends = descendants(self._process.pid)
        self._process.popen.kill()
        self._process.popen.wait()
        self._process = None
        # The backends end by themselves, and until then hold the shared memory that the next start needs.
        wait_for(
            lambda: [pid for pid in backends if is_running(pid)], lambda left: not left, what="end of the backends"
        )

    def execute(self, statement: str, *names: str) -> None:
        """Run a statement about databases, outside of a transaction."""
        with psycopg.connect(self.url(scheme="postgresql"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _responds(self) -> bool:
        try:
            psycopg.connect(self.url(scheme="postgresql"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def find_programs(*, installed: Path = DEBIAN_HOME, cache: Path | None = None) -> PostgresPrograms:
    """Return the programs to use; `UnavailableError` where this machine has none."""
    account = _unprivileged_account() if os.geteuid() == 0 else None
    if configured := os.environ.get(BIN_VARIABLE):
        if not _is_complete(Path(configured)):
            raise UnavailableError(f"{BIN_VARIABLE} is {configured}, which lacks postgres or initdb")
        return PostgresPrograms(bin_dir=Path(configured), account=account)
    on_path = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    by_version = sorted(installed.glob("*/bin"), key=lambda path: _version(path.parent.name), reverse=True)
    for bin_dir in [*on_path, *by_version]:
        if _is_complete(bin_dir):
            return PostgresPrograms(bin_dir=bin_dir, account=account)
    cache = cache or cache_root() / PACKAGE
    tree = debian.cached(cache) or debian.fetch(PACKAGE, cache=cache, also=_is_needed)
    return PostgresPrograms(bin_dir=next(tree.glob("usr/lib/postgresql/*/bin")), account=account, tree=tree)


@contextmanager
def running_postgres(programs: PostgresPrograms, *, log_dir: Path, fsync: bool) -> Iterator[PostgresServer]:
    """Start a server with new data; without `fsync` it is faster, and survives a kill but not a power cut."""
    directory = Path(
        tempfile.mkdtemp(prefix="fw-pg-")
    )  # accessible for the account, and short enough for the path of a socket
    try:
        if account := programs.account:
            programs = programs.copied(directory / "package")
            os.chown(directory, account.pw_uid, account.pw_gid)
        server = PostgresServer(programs=programs, directory=directory, log_dir=log_dir, fsync=fsync)
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_programs() -> PostgresPrograms:
    """Return the programs for a test that needs its own server (`running_postgres`)."""
    with skipping_where_unavailable("postgres", what="PostgreSQL"):
        return find_programs()


@pytest.fixture(scope="session")
def postgres(postgres_programs: PostgresPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Share one server among all tests, without fsync: its data need not survive a power cut."""
    with running_postgres(postgres_programs, log_dir=tmp_path_factory.mktemp("postgres"), fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Return the SQLAlchemy URL of an empty database that only this test uses."""
    with _own_database(postgres, template="template1") as url:
        yield url


@pytest.fixture(scope="session")
def migrated_template(postgres: PostgresServer) -> str:
    """Return the name of a migrated database to copy: a migration takes a third of a second."""
    name = "migrated"
    postgres.execute("CREATE DATABASE {}", name)
    Migrations(postgres.url(name)).upgrade()
    return name


@pytest.fixture
def migrated_postgres_url(postgres: PostgresServer, migrated_template: str) -> Iterator[str]:
    """Return the SQLAlchemy URL of a migrated database that only this test uses."""
    with _own_database(postgres, template=migrated_template) as url:
        yield url


@contextmanager
def _own_database(postgres: PostgresServer, *, template: str) -> Iterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    postgres.execute("CREATE DATABASE {} TEMPLATE {}", name, template)
    yield postgres.url(name)
    postgres.execute("DROP DATABASE {} WITH (FORCE)", name)


def _is_complete(bin_dir: Path) -> bool:
    return all((bin_dir / program).exists() for program in ("postgres", "initdb"))


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def _is_needed(package: str) -> bool:
    is_server = re.fullmatch(r"postgresql-\d+", package) is not None
    return is_server or (package.startswith("lib") and not package.startswith("libllvm"))


def _unprivileged_account() -> pwd.struct_passwd:
    if shutil.which("setpriv") is None:
        raise UnavailableError("PostgreSQL does not run as root, and there is no setpriv on PATH to change the account")
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise UnavailableError(f"PostgreSQL does not run as root, and there is no account {' or '.join(ACCOUNTS)}")
