"""Receives the datagrams of this node's ranks (`fleetwright.collectives`) on a Unix socket.

Any process that may write to the socket can send, so every line is parsed as a line of a recording.
"""

import contextlib
import errno
import json
import socket
import stat
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Final

from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError
from faults.readers.rank_jsonl import parse_collective, parse_heartbeat

SOURCE: Final = "inbox"
MAX_BYTES: Final = 1 << 16
MAX_WAITING: Final = 4096  # datagrams
_PARSERS: Final = {"hb": parse_heartbeat, "coll": parse_collective}
_KINDS: Final = ((stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a symbolic link"))


class Inbox:
    """A bound datagram socket.  A thread empties it at once, because the kernel queues as few as ten datagrams.

    A socket left by a killed recorder is replaced; anything else at the path raises FileExistsError.
    """

    name = "inbox"

    def __init__(self, path: Path, *, job_map: JobMap, tally: ParseErrors, period_s: float = 0.25) -> None:
        self.period_s = period_s
        self._path, self._places, self._tally = path, job_map, tally
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale_socket(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        try:
            self._socket.bind(str(path))
        except OSError:
            self._socket.close()
            raise
        self._waiting: deque[bytes] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._thread.start()

    def poll(self, now_s: float) -> list[Observation]:  # noqa: ARG002 - the lines have their own times
        observations: list[Observation] = []
        for _ in range(len(self._waiting)):
            for line in self._waiting.popleft().splitlines():
                with self._tally.skipping(SOURCE):
                    observations += parse_rank_line(line, job_map=self._places)
        return observations

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._path.unlink()  # while this process owns it: after the close another process may bind it
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(timeout=1.0)
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(MAX_BYTES)
            except OSError:
                return
            if not data and self._closing.is_set():
                return
            if not data:  # any process may send an empty datagram
                self._tally.add(SOURCE, "empty datagram")
            elif len(self._waiting) < MAX_WAITING:
                self._waiting.append(data)
            else:
                self._tally.add(SOURCE, "too many at once")


class LateInbox:
    """An inbox that is opened at the first poll at which its path is free.

    For a recorder that starts while another may still hold the path: until then each poll raises FileExistsError.
    """

    name = Inbox.name

    def __init__(self, path: Path, *, job_map: JobMap, tally: ParseErrors, period_s: float = 0.25) -> None:
        self.period_s = period_s
        self._open = partial(Inbox, path, job_map=job_map, tally=tally, period_s=period_s)
        self._inbox: Inbox | None = None
        with contextlib.suppress(FileExistsError):
            self._inbox = self._open()

    def poll(self, now_s: float) -> list[Observation]:
        if self._inbox is None:
            self._inbox = self._open()
        return self._inbox.poll(now_s)

    def close(self) -> None:
        """Remove the socket's path, if this process created it."""
        if self._inbox is not None:
            self._inbox.close()


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        kind = next((name for is_one, name in _KINDS if is_one(mode)), "something that is no socket")
        raise FileExistsError(f"{path} is {kind}, expected a free path or a socket that was left behind")
    if not _is_dead(path):
        raise FileExistsError(f"{path} is a socket that another process listens to, such as another recorder's inbox")
    path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as query:
        return query.connect_ex(str(path)) == errno.ECONNREFUSED


def parse_rank_line(line: bytes, *, job_map: JobMap) -> list[Observation]:
    try:
        record = json.loads(line)
        parse = _PARSERS[record["k"]]
        rank = record["rank"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise MalformedError("not a record of a rank") from error
    if type(rank) is not int:
        raise MalformedError("not a record of a rank")
    return parse(line, rank=rank, job_map=job_map)
