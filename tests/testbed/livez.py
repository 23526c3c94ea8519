"""Measures how long a service takes to answer `/livez` while something else happens to it.

Another process of the same machine answers the same request at once.  Its times show how busy the machine is, so that
a test fails for what the service does and not for what runs beside the tests.
"""

import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.testbed.processes import LOOPBACK, Process, free_ports

INTERVAL_S: Final = 0.02
LOST_S: Final = 10.0  # counts for a request without a response
REQUEST: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CONTROL: Final = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
"""


def p99_s(took_s: Sequence[float]) -> float:
    return sorted(took_s)[int(0.99 * len(took_s))]


@dataclass(frozen=True, slots=True)
class LivezTimes:
    service_s: list[float] = field(default_factory=list)
    control_s: list[float] = field(default_factory=list)

    @property
    def added_p99_s(self) -> float:
        """The p99 of the service above that of the control."""
        return p99_s(self.service_s) - p99_s(self.control_s)


@dataclass(frozen=True, slots=True)
class LivezProbe:
    port: int
    control_port: int

    @contextmanager
    def running(self) -> Iterator[LivezTimes]:
        """Probe while the block runs."""
        times, ended = LivezTimes(), threading.Event()

        def run() -> None:
            while not ended.wait(INTERVAL_S) or not times.service_s:
                times.control_s.append(_took_s(self.control_port))
                times.service_s.append(_took_s(self.port))

        with ThreadPoolExecutor(1) as pool:
            probing = pool.submit(run)
            try:
                yield times
            finally:
                ended.set()
        probing.result()


@contextmanager
def livez_probe(port: int, folder: Path) -> Iterator[LivezProbe]:
    (control_port,) = free_ports(1)
    argv = [sys.executable, "-I", "-S", "-c", CONTROL, str(control_port)]
    with Process.start(argv, name="livez-control", log_dir=folder) as control:
        control.wait_ready(lambda: _took_s(control_port) < LOST_S)
        yield LivezProbe(port=port, control_port=control_port)


def _took_s(port: int) -> float:
    started_s = time.perf_counter()
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=LOST_S) as connection:
        connection.sendall(REQUEST)
        if connection.recv(100).startswith(b"HTTP/1.1 200"):
            return time.perf_counter() - started_s
    return LOST_S
