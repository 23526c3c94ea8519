"""The second way: a rank tells the watcher itself over HTTP, while the inbox of its node's recorder refuses.

The job's side is an append.  A thread, begun at the first refusal, loads the recorder's Sender and what reads the
inbox's lines, and hands over: sessions, budget, retries and what is kept are theirs.  docs/faults/recorder.md
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from faults.readers.job_map import Places

log = logging.getLogger(__name__)

MAX_WAITING: Final = 4096  # lines: as many as the journal holds
MAX_RANKS_PER_NODE: Final = 64  # as a watcher's job may have
MAX_RANKS: Final = 1 << 17
NODE_BYTES_PER_S: Final = 1000.0  # of all ranks of a node together: what their recorder has, whose place they take
LOOK_S: Final = 0.25  # between looks at whether what waits is due
CLOSE_S: Final = 2.0  # that the end of a job waits at most for its last words to be sent
FIELDS: Final = "ranks_per_node=NUMBER and token_file=FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """Where a rank tells directly, and as whom.  Ranks fill the nodes one after the other."""

    url: str
    ranks_per_node: int = 1
    token: str | None = field(default=None, repr=False)

    @property
    def budget_bytes_per_s(self) -> float:
        """Of one rank: all of a node lose their recorder at the same moment."""
        return NODE_BYTES_PER_S / self.ranks_per_node


def second_of(said: str) -> Second:
    """From `http://HOST:PORT` and fields after commas.  Raises ValueError, which names the field."""
    url, *fields = said.split(",")
    given: dict[str, str] = {}
    for each in fields:
        name, _equals, value = each.partition("=")
        if name not in ("ranks_per_node", "token_file") or not value or name in given:
            raise ValueError(f"{each!r} after the watcher: expected {FIELDS}, each at most once")
        given[name] = value
    return Second(
        url=_url(url),
        ranks_per_node=_ranks(given.get("ranks_per_node", "1")),
        token=_token(Path(given["token_file"])) if "token_file" in given else None,
    )


def _url(said: str) -> str:
    try:
        parts = urlsplit(said)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
        usable = usable and not (parts.query or parts.fragment)
    except ValueError:  # of brackets, or of the port
        usable = False
    if not usable:
        raise ValueError(f"watcher {said!r}: expected http://HOST:PORT or https://HOST:PORT")
    return said


def _ranks(said: str) -> int:
    if not (said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= MAX_RANKS_PER_NODE):
        raise ValueError(f"ranks_per_node {said!r}: expected a whole number from 1 to {MAX_RANKS_PER_NODE}")
    return int(said)


def _token(path: Path) -> str:
    from deploy.common.token_file import TokenFileError, read_token_file  # noqa: PLC0415 - only where there is one

    try:
        return read_token_file(path)
    except TokenFileError as error:
        raise ValueError(f"token_file {error}") from error


class Direct:
    """Lines of a rank on their way to the watcher."""

    def __init__(self, second: Second, *, rank: int) -> None:
        self.taken = 0  # lines
        self.lost = 0  # of those: malformed, over the budget, or refused by the watcher
        self._second, self._rank = second, rank
        self._waiting: deque[bytes] = deque()
        self._go, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False

    def take(self, lines: Sequence[bytes]) -> bool:
        """Never waits; false where there is no room, or no way to send."""
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
        """Send what is left, and give up what takes long."""
        self._closing.set()
        self._go.set()
        if self._thread is not None:
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        try:
            self._hand_over_until_closed()
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the job
            self._failed = True
            self.lost += len(self._waiting)
            self._waiting.clear()
            log.warning("this rank cannot tell the watcher itself: %s", error)

    def _hand_over_until_closed(self) -> None:
        from deploy.telemetry.inbox import told_by_rank  # noqa: PLC0415 - loaded when they are first needed
        from deploy.telemetry.sender import Sender  # noqa: PLC0415
        from faults.readers.parse_errors import Tally  # noqa: PLC0415

        second, malformed = self._second, Tally()
        places = _places(second.ranks_per_node)
        sender = Sender(
            second.url,
            node=self._rank // second.ranks_per_node,
            rank=self._rank,
            token=second.token,
            budget_bytes_per_s=second.budget_bytes_per_s,
        )
        ends = False
        while not ends:
            self._go.wait(LOOK_S if sender.waiting else None)
            self._go.clear()
            ends = self._closing.is_set()
            for _ in range(len(self._waiting)):
                with malformed.skipping("direct"):
                    sender.observed(told_by_rank(self._waiting.popleft(), places=places))
            sender.flush()
            if ends:
                sender.close()
            self.lost = malformed.total + sender.sent.dropped


def _places(ranks_per_node: int) -> "Places":
    """Of a job whose size is not known here: the watcher knows it, and leaves out what it has not."""
    from faults.readers.job_map import Places  # noqa: PLC0415

    class Filled(Places):
        def node(self, rank: int) -> int:
            return self.known(rank // ranks_per_node)

    return Filled(MAX_RANKS, ())
