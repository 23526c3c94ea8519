"""Where a rank's records go.  Each line is a record of the schema in docs/faults/recorder.md."""

import json
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TextIO

from fleetwright.collectives.http_fallback import HttpFallback, parse_address
from fleetwright.collectives.records import Line

log = logging.getLogger(__name__)

VARIABLE: Final = "FLEETWRIGHT_COLLECTIVES"  # a folder, or unix:PATH of the recorder's inbox and what follows it
MAX_BYTES: Final = 32 * 1024  # of a datagram
_UNIX: Final = "unix:"


class Sink(Protocol):
    """Takes lines in; may raise OSError, and the line is then dropped and counted."""

    def put(self, kind: str, line: Line) -> None:
        """One record: `hb` or `coll`."""
        ...

    def flush(self) -> None:
        """What was put is there for others to read."""
        ...

    def close(self) -> None:
        """The job ends."""
        ...


class FolderSink:
    """Files of a recording folder: hb_rank{r}.jsonl, coll_rank{r}.jsonl."""

    def __init__(self, folder: Path, *, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, TextIO] = {
            kind: (folder / f"{kind}_rank{rank}.jsonl").open("a", encoding="utf-8") for kind in ("hb", "coll")
        }

    def put(self, kind: str, line: Line) -> None:
        """One line."""
        self._files[kind].write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Some times a second: a process that is killed leaves nearly all of what it wrote."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


@dataclass(slots=True)
class RouteCounts:
    """How many records went which way."""

    inbox: int = 0
    direct: int = 0  # handed to the second way; what it then loses is counted there
    refused: int = 0  # by both, or by the inbox where there is no second way: lost


class InboxSink:
    """The inbox of the node's recorder, a Unix datagram socket: found by its path from any network namespace.

    Lines go together, as many as fit.  A full or absent inbox refuses at once, so nothing here ever waits; what it
    refuses goes the second way, where there is one.  A datagram is taken whole or not at all, so nothing goes both.
    """

    def __init__(self, path: str, *, rank: int, fallback: HttpFallback | None = None) -> None:
        self.counts = RouteCounts()
        self._path, self._rank, self._fallback = path, rank, fallback
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's
        self._held: list[bytes] = []
        self._held_bytes = 0

    def put(self, kind: str, line: Line) -> None:
        """One line of a datagram."""
        record = json.dumps({"k": kind, "rank": self._rank} | line, separators=(",", ":")).encode()
        if self._held_bytes + len(record) > MAX_BYTES:
            self.flush()
        self._held.append(record)
        self._held_bytes += len(record) + 1

    def flush(self) -> None:
        """Send what is held: the inbox is asked anew each time, for that costs one call."""
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        try:
            self._socket.sendto(b"\n".join(held), self._path)
        except OSError:
            if self._fallback is None or not self._fallback.take(held):
                self.counts.refused += len(held)
                raise
            self.counts.direct += len(held)
        else:
            self.counts.inbox += len(held)

    def close(self) -> None:
        """Close the socket, and see to it that the second way has sent what it was given."""
        self._socket.close()
        if self._fallback is None:
            return
        self._fallback.close()
        if self.counts.direct:
            counts, lost = self.counts, self._fallback.lost
            log.info("records: %d by the inbox, %d directly, %d of them lost", counts.inbox, counts.direct, lost)


class NullSink:
    """In place of an outlet that could not be had."""

    def put(self, kind: str, line: Line) -> None:
        """Forgotten."""

    def flush(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


def sink_from(said: str | None, *, rank: int) -> Sink:
    """From what the caller or the environment names: a folder, or `unix:`, a path and maybe a watcher after a comma."""
    place = said or os.environ.get(VARIABLE)
    if not place:
        raise ValueError(f"nowhere to write to: name a folder or unix:PATH, or set {VARIABLE}")
    if place.startswith(_UNIX):
        path, comma, watcher = place.removeprefix(_UNIX).partition(",")
        return InboxSink(path, rank=rank, fallback=HttpFallback(parse_address(watcher), rank=rank) if comma else None)
    return FolderSink(Path(place), rank=rank)
