"""The monitor's codec decodes a rank's batch to the records that the recorder's inbox reads from the same lines."""

import json
from typing import Any

import pytest

from deploy.telemetry.batch_codec import decode, encode
from deploy.telemetry.inbox import parse_rank_line
from faults.readers.job_map import JobMap
from fleetwright.collectives.rank_batches import affordable, row_of, shifted
from fleetwright.telemetry.batch_format import Row, pack

SENT_S = 1_800_000_010.25
BEAT = {"k": "hb", "rank": 5, "t": 1_800_000_000.5, "enq": 5, "done": 4, "op": "p2p", "step": 4, "phase": "comm"}
DONE = {
    "k": "coll",
    "rank": 5,
    "seq": 7,
    "op": "all_reduce",
    "n": 64,
    "t0": 1_800_000_001.0,
    "t1": 1_800_000_001.123457,
}
ARRIVED = {**DONE, "t1": None, "step": 3, "group": "0-7"}
PASS = {"k": "coll", "rank": 5, "op": "p2p", "src": 3, "dst": 6, "n": 8, "t0": 1_800_000_002.0, "tr": 1_800_000_002.5,
        "ts": 1_800_000_002.25, "step": 3}  # fmt: skip


class TwoRanksANode(JobMap):
    def node(self, rank: int) -> int:
        return rank // 2


@pytest.mark.parametrize("line", [BEAT, DONE, ARRIVED, PASS])
def test_a_ranks_batch_decodes_to_the_same_as_its_recorders_batch(line: dict[str, Any]) -> None:
    observations = parse_rank_line(json.dumps(line).encode(), job_map=TwoRanksANode(100, ()))
    by_recorder, _ = encode([], observations, session="s", number=1, held=None, node=2, sent_s=SENT_S, rank=5)
    rows = [shifted(row_of(line, node=2, ranks_per_node=2), SENT_S)]
    by_rank = pack(session="s", number=1, base=None, node=2, sent_s=SENT_S, polls=[], others=rows, rank=5)
    expected, _ = decode(by_recorder, held_of=lambda _node, _session: None)
    assert decode(by_rank, held_of=lambda _node, _session: None)[0] == expected
    assert expected.malformed == 0


@pytest.mark.parametrize("line", [{}, {"k": "x", "rank": 5}, {**BEAT, "t": None}, {**ARRIVED, "group": "1," * 200}])
def test_a_line_outside_the_schema_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        row_of(line, node=2, ranks_per_node=2)


def test_over_budget_keeps_the_newest_heartbeat_and_the_newest_rows() -> None:
    rows: list[Row] = [[at, 2, 5, None, "heartbeat" if at == 0 else "collective", []] for at in range(6)]
    beat, *rest = rows
    assert affordable(rows, 6) == rows
    assert affordable(rows, 3) == [beat, *rest[-2:]]
    newest_beat: Row = [9, 2, 5, None, "heartbeat", []]
    assert affordable([*rows, newest_beat], 2) == [rest[-1], newest_beat]
