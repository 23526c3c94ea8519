"""Posts a rank's records to the fault monitor over HTTP while the inbox of its node's recorder refuses them.

The job's side is one append.  A thread starts at the first refusal, and imports the sender then.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from fleetwright.collectives.rank_batches import RankSender

log = logging.getLogger(__name__)

MAX_WAITING: Final = 4096  # lines: as many as the queue holds
MAX_RANKS_PER_NODE: Final = 64  # as in a monitor's job file
NODE_BYTES_PER_S: Final = 1000.0  # shared by all ranks of a node: the budget of their recorder
POLL_S: Final = 0.25  # while lines wait to be due
CLOSE_S: Final = 2.0  # limit of the wait for the last batch at the end of a job
FIELDS: Final = "ranks_per_node=NUMBER and token_file=FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorAddress:
    """The monitor's URL, and the node and secret of the rank.  Ranks fill the nodes in order."""

    url: str
    ranks_per_node: int = 1
    token: str | None = field(default=None, repr=False)

    @property
    def budget_bytes_per_s(self) -> float:
        """Return the budget of one rank: all ranks of a node lose their recorder at the same time."""
        return NODE_BYTES_PER_S / self.ranks_per_node


def parse_address(text: str) -> MonitorAddress:
    """Parse `http://HOST:PORT` and comma-separated fields.  Raise ValueError, which names the field."""
    url, *fields = text.split(",")
    given: dict[str, str] = {}
    for each in fields:
        name, _equals, value = each.partition("=")
        if name not in ("ranks_per_node", "token_file") or not value or name in given:
            raise ValueError(f"{each!r} after the monitor: expected {FIELDS}, each at most once")
        given[name] = value
    return MonitorAddress(
        url=_url(url),
        ranks_per_node=_ranks(given.get("ranks_per_node", "1")),
        token=_token(Path(given["token_file"])) if "token_file" in given else None,
    )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
        usable = usable and not (parts.query or parts.fragment)
    except ValueError:  # brackets, or the port
        usable = False
    if not usable:
        raise ValueError(f"monitor {text!r}: expected http://HOST:PORT or https://HOST:PORT")
    return text


def _ranks(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_RANKS_PER_NODE):
        raise ValueError(f"ranks_per_node {text!r}: expected a whole number from 1 to {MAX_RANKS_PER_NODE}")
    return int(text)


def _token(path: Path) -> str:
    from fleetwright.token_file import read_token  # noqa: PLC0415 - only if a file is named

    try:
        return read_token(path)
    except ValueError as error:
        raise ValueError(f"token_file {error}") from error


class HttpFallback:
    def __init__(self, address: MonitorAddress, *, rank: int) -> None:
        self.taken = 0  # lines
        self.lost = 0  # of those: malformed, over the budget, or refused by the monitor
        self._address, self._rank = address, rank
        self._waiting: deque[bytes] = deque()
        self._go, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False

    def take(self, lines: Sequence[bytes]) -> bool:
        """Queue lines without waiting; return false if the queue is full or the thread has failed."""
        if self._failed or len(self._waiting) + len(lines) > MAX_WAITING:
            return False
        self.taken += len(lines)
        self._waiting.extend(lines)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleetwright-direct", daemon=True)
            self._thread.start()
        self._go.set()
        return True

    def close(self) -> None:
        self._closing.set()
        self._go.set()
        if self._thread is not None:
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        try:
            self._send_until_closed()
        except Exception as error:  # noqa: BLE001 - no error may reach the job
            self._failed = True
            self.lost += len(self._waiting)
            self._waiting.clear()
            log.warning("this rank cannot post to the fault monitor: %s", error)

    def _send_until_closed(self) -> None:
        from fleetwright.collectives.rank_batches import RankSender  # noqa: PLC0415 - loaded on first use

        address, malformed = self._address, 0
        sender = RankSender(
            address.url,
            node=self._rank // address.ranks_per_node,
            rank=self._rank,
            ranks_per_node=address.ranks_per_node,
            token=address.token,
            budget_bytes_per_s=address.budget_bytes_per_s,
        )
        ends = False
        while not ends:
            self._go.wait(POLL_S if sender.waiting else None)
            self._go.clear()
            ends = self._closing.is_set()
            malformed += self._hand_over(sender)
            sender.flush()
            if ends:
                sender.close()
            self.lost = malformed + sender.sent.dropped

    def _hand_over(self, sender: "RankSender") -> int:
        malformed = 0
        for _ in range(len(self._waiting)):
            try:
                sender.add(json.loads(self._waiting.popleft()))
            except (ValueError, KeyError, TypeError):
                malformed += 1
        return malformed
