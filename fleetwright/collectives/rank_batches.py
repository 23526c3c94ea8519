"""A rank's own records as batches for the fault monitor."""

from collections import deque
from typing import Final

from fleetwright.collectives.progress import FAILED, Line
from fleetwright.telemetry.batch_format import Row, pack
from fleetwright.telemetry.batch_sender import MAX_OTHERS, BatchSender

HEARTBEAT, COLLECTIVE, PASS = "heartbeat", "collective", "pass"  # kinds of observations
_TIMES: Final = {HEARTBEAT: (), COLLECTIVE: (3, 4), PASS: (3, 4, 5)}  # where the values hold times
MAX_TEXT: Final = 256


class RankSender(BatchSender[list[Row]]):
    def __init__(
        self, url: str, *, node: int, rank: int, ranks_per_node: int, token: str | None, budget_bytes_per_s: float
    ) -> None:
        self._node, self._rank, self._ranks_per_node = node, rank, ranks_per_node
        self._rows: deque[Row] = deque(maxlen=MAX_OTHERS)
        self._failed = False
        super().__init__(url, token=token, budget_bytes_per_s=budget_bytes_per_s)

    @property
    def waiting(self) -> bool:
        return bool(self._rows)

    def add(self, line: Line) -> None:
        """Add a record.  Raise KeyError, TypeError or ValueError for one that breaks the schema."""
        row = row_of(line, node=self._node, ranks_per_node=self._ranks_per_node)
        if row[4] == HEARTBEAT:
            failed = row[5][4] == FAILED
            self._urgent = self._urgent or (failed and not self._failed)
            self._failed = failed
        self.sent.dropped += len(self._rows) == MAX_OTHERS
        self._rows.append(row)

    def _take(self) -> list[Row]:
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        kept = affordable(rows, self._affordable())
        self.sent.dropped += len(rows) - len(kept)
        return kept

    def _is_empty(self, content: list[Row]) -> bool:
        return not content

    def _encode(self, content: list[Row], *, session: str, number: int, sent_s: float) -> bytes:
        others = [shifted(row, sent_s) for row in content]
        return pack(
            session=session,
            number=number,
            base=None,
            node=self._node,
            sent_s=sent_s,
            polls=[],
            others=others,
            rank=self._rank,
        )

    def _lost(self, content: list[Row], *, refused: bool) -> None:  # noqa: ARG002 - newer rows follow in any case
        self.sent.dropped += len(content)


def row_of(line: Line, *, node: int, ranks_per_node: int) -> Row:
    """Convert a line of `docs/explanation/faults/observations.md` to an observation.

    A finished operation becomes known when it finishes.
    """
    rank = line["rank"]
    if line["k"] == "hb":
        values = [line["enq"], line["done"], line["op"], line["step"], line["phase"]]
        return [float(line["t"]), node, rank, None, HEARTBEAT, values]
    if line["k"] != "coll":
        raise ValueError("the line is neither a heartbeat nor a collective")
    if line["op"] == "p2p":
        received_s, sent_s = float(line["tr"]), float(line["ts"])
        values = [line["src"], line["dst"], line["n"], float(line["t0"]), received_s, sent_s, line.get("step")]
        return [max(received_s, sent_s), node, rank, line["src"] // ranks_per_node, PASS, values]
    arrived_s, finished_s = float(line["t0"]), None if line["t1"] is None else float(line["t1"])
    group = line.get("group", "")
    if len(group) > MAX_TEXT:
        raise ValueError(f"the group's name is longer than {MAX_TEXT} characters")
    values = [line["seq"], line["op"], line["n"], arrived_s, finished_s, line.get("step"), group]
    return [arrived_s if finished_s is None else finished_s, node, rank, None, COLLECTIVE, values]


def shifted(row: Row, zero_s: float) -> Row:
    """Return the row with its times counted from `zero_s`, to the microsecond."""
    at_s, node, rank, peer, kind, values = row
    moved = list(values)
    for at in _TIMES[kind]:
        if moved[at] is not None:
            moved[at] = round(moved[at] - zero_s, 6)
    return [round(at_s - zero_s, 6), node, rank, peer, kind, moved]


def affordable(rows: list[Row], max_rows: int) -> list[Row]:
    """Return at most so many rows, in order: the newest heartbeat, then the newest rows."""
    if len(rows) <= max_rows:
        return rows
    beat = next((at for at in reversed(range(len(rows))) if rows[at][4] == HEARTBEAT), len(rows) - 1)
    if beat >= len(rows) - max_rows:
        return rows[-max_rows:]
    return [rows[beat], *rows[len(rows) - max_rows + 1 :]]
