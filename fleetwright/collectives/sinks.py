"""Destinations of a rank's records.  The schema of a line: docs/explanation/faults/observations.md"""

import json
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TextIO

from fleetwright.collectives.http_fallback import HttpFallback, parse_address
from fleetwright.collectives.progress import Line

log = logging.getLogger(__name__)

VARIABLE: Final = "FLEETWRIGHT_COLLECTIVES"  # a folder, or unix:PATH of the recorder's inbox and the fallback
MAX_BYTES: Final = 32 * 1024  # of a datagram
_UNIX: Final = "unix:"


class Sink(Protocol):
    """Takes lines.  May raise OSError; the line is then dropped and counted."""

    def put(self, kind: str, line: Line) -> None:
        """Take one record: `hb` or `coll`."""

    def flush(self) -> None:
        """Make the lines available to readers."""

    def close(self) -> None: ...


class FolderSink:
    """Writes the files of a recording folder: hb_rank{r}.jsonl, coll_rank{r}.jsonl."""

    def __init__(self, folder: Path, *, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, TextIO] = {
            kind: (folder / f"{kind}_rank{rank}.jsonl").open("a", encoding="utf-8") for kind in ("hb", "coll")
        }

    def put(self, kind: str, line: Line) -> None:
        self._files[kind].write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Write the lines several times a second, so that a killed process leaves nearly all of its records."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


@dataclass(slots=True)
class RouteCounts:
    inbox: int = 0
    direct: int = 0  # handed to the fallback, which counts its own losses
    refused: int = 0  # by both, or by the inbox without a fallback: lost


class InboxSink:
    """The inbox of the node's recorder: a Unix datagram socket, reachable by path from any network namespace.

    As many lines as fit share a datagram.  A full or absent inbox refuses at once, so nothing waits, and the fallback
    takes the refused lines.  A datagram is accepted whole or not at all, so no line takes both routes.
    """

    def __init__(self, path: str, *, rank: int, fallback: HttpFallback | None = None) -> None:
        self.counts = RouteCounts()
        self._path, self._rank, self._fallback = path, rank, fallback
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's
        self._held: list[bytes] = []
        self._held_bytes = 0

    def put(self, kind: str, line: Line) -> None:
        record = json.dumps({"k": kind, "rank": self._rank} | line, separators=(",", ":")).encode()
        if self._held_bytes + len(record) > MAX_BYTES:
            self.flush()
        self._held.append(record)
        self._held_bytes += len(record) + 1

    def flush(self) -> None:
        """Send the lines.  Each flush tries the inbox first, which costs one call."""
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
        """Close the socket, and let the fallback send its lines."""
        self._socket.close()
        if self._fallback is None:
            return
        self._fallback.close()
        if self.counts.direct:
            counts, lost = self.counts, self._fallback.lost
            log.info("records: %d by the inbox, %d directly, %d of them lost", counts.inbox, counts.direct, lost)


class NullSink:
    """Replaces a sink that could not be opened."""

    def put(self, kind: str, line: Line) -> None:
        """Drop the line."""

    def flush(self) -> None:
        """Do nothing, because no lines are held."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def sink_from(text: str | None, *, rank: int) -> Sink:
    """Open the sink of the caller's text or the environment: a folder, or `unix:PATH[,MONITOR]`."""
    place = text or os.environ.get(VARIABLE)
    if not place:
        raise ValueError(f"nowhere to write to: name a folder or unix:PATH, or set {VARIABLE}")
    if place.startswith(_UNIX):
        path, comma, monitor = place.removeprefix(_UNIX).partition(",")
        return InboxSink(path, rank=rank, fallback=HttpFallback(parse_address(monitor), rank=rank) if comma else None)
    return FolderSink(Path(place), rank=rank)
