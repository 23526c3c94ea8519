"""Runs a process for the tests: logs to a file, ready when a probe succeeds, ended with the tests.

Every process leads its own group, so that `stop` also reaches its children.  The kernel kills it when the test run is
killed (`launch.py`).  Start it from the main thread: the kernel monitors the thread that started it.
"""

import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from tests.testbed import launch
from tests.testbed.waiting import PATIENCE_S, wait_for

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(
    15000, 32768
)  # below Linux's range for outgoing connections, which could take a free port before its server does


class ProcessError(RuntimeError):
    """Carries the end of the log of a process that ended, or never became ready."""


@dataclass(frozen=True, kw_only=True)
class Process:
    name: str
    log_path: Path
    popen: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        argv: Sequence[str | Path],
        *,
        name: str,
        log_dir: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Self:
        """Start `argv`; `prefix` is a command that execs the rest of its arguments, such as `unshare`."""
        log_dir.mkdir(parents=True, exist_ok=True)
        log_path = log_dir / f"{name}.log"
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        with log_path.open("ab") as log:
            popen = subprocess.Popen(
                [*prefix, *launcher, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        return cls(name=name, log_path=log_path, popen=popen)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def running(self) -> bool:
        return self.popen.poll() is None

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, probe: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until `probe` returns something true; `ProcessError` if the process ends before, or time is up."""
        try:
            wait_for(lambda: self._checked(probe), what=f"ready {self.name}", timeout_s=timeout_s)
        except TimeoutError as error:
            raise ProcessError(f"{error}\n{self.log_tail()}") from None

    def stop(self, *, grace_s: float = 2.0) -> int:
        """End the process and its group, by force after `grace_s`, and return its exit status; idempotent."""
        if self.running():
            self._signal_group(signal.SIGTERM)
            try:
                self.popen.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._signal_group(signal.SIGKILL)
                self.popen.wait()
            self._signal_group(signal.SIGKILL)  # the rest of its group
        return self.popen.wait()

    def _checked(self, probe: Callable[[], object]) -> object:
        if not self.running():
            raise ProcessError(f"{self.name} ended with status {self.popen.returncode}\n{self.log_tail()}")
        return probe()

    def _signal_group(self, which: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the group is empty
            os.killpg(self.popen.pid, which)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports that are free on loopback now."""
    found: set[int] = set()
    while len(found) < count:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        if _is_free(port):
            found.add(port)
    return list(found)


def answers_ok(url: str, *, ca_path: Path | None = None) -> bool:
    """Check whether a GET of `url` returns 2xx; `ca_path` holds the authority of its TLS certificate."""
    try:
        return httpx.get(url, verify=_trusted(ca_path), trust_env=False, timeout=5.0).is_success
    except httpx.TransportError:
        return False


@cache
def _trusted(ca_path: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_path)  # 40 ms of a processor, too much for each poll


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
