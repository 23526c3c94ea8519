"""Where a rank's records go.  Each line is a record of the schema in docs/faults/recorder.md."""

import json
import os
import socket
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

Line = dict[str, Any]

VARIABLE: Final = "FLEETWRIGHT_COLLECTIVES"  # a folder, or unix:PATH of the recorder's inbox
MOST_BYTES: Final = 32 * 1024  # of a datagram
_UNIX: Final = "unix:"


class Outlet(Protocol):
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


class Lines:
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


class Datagrams:
    """The inbox of the node's recorder, a Unix datagram socket: found by its path from any network namespace.

    Lines go together, as many as fit.  A full or absent inbox refuses at once, so nothing here ever waits.
    """

    def __init__(self, path: str, *, rank: int) -> None:
        self._path, self._rank = path, rank
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's
        self._held: list[bytes] = []
        self._held_bytes = 0

    def put(self, kind: str, line: Line) -> None:
        """One line of a datagram."""
        record = json.dumps({"k": kind, "rank": self._rank} | line, separators=(",", ":")).encode()
        if self._held_bytes + len(record) > MOST_BYTES:
            self.flush()
        self._held.append(record)
        self._held_bytes += len(record) + 1

    def flush(self) -> None:
        """Send what is held; what is refused is lost."""
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._socket.sendto(b"\n".join(held), self._path)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Nowhere:
    """In place of an outlet that could not be had."""

    def put(self, kind: str, line: Line) -> None:
        """Forgotten."""

    def flush(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


def outlet_of(said: str | None, *, rank: int) -> Outlet:
    """From what the caller or the environment names: a folder, or `unix:` and a path."""
    place = said or os.environ.get(VARIABLE)
    if not place:
        raise ValueError(f"nowhere to write to: name a folder or unix:PATH, or set {VARIABLE}")
    if place.startswith(_UNIX):
        return Datagrams(place.removeprefix(_UNIX), rank=rank)
    return Lines(Path(place), rank=rank)
