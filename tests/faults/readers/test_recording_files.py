"""The same code reads growing files and complete files."""

import pytest

from faults.readers import ParseErrors, read
from faults.readers.job_map import JobMap
from faults.readers.recording_files import dump_rank, is_recorded, line_reader
from tests.faults.readers import made

PLACES = JobMap(made.RANKS, (0, 1, 2), zero_s=made.T_GO_S)


@pytest.mark.parametrize("name", ["coll_rank1.jsonl", "hb_rank1.jsonl", "tcp_node1.jsonl"])
def test_a_growing_file_gives_the_same_observations_as_the_complete_file(name: str) -> None:
    data = made.folder()[name]
    tally = ParseErrors()
    reader = line_reader(name, job_map=PLACES, tally=tally)
    assert reader is not None

    found = [observation for at in range(0, len(data), 100) for observation in reader.feed(data[at : at + 100])]

    assert [*found, *reader.end()] == sorted(
        read({"run.json": made.run(), name: data}).observations, key=lambda observation: observation.at_s
    )
    assert tally.total == 0


def test_a_line_is_read_when_it_is_complete() -> None:
    reader = line_reader("hb_rank0.jsonl", job_map=PLACES, tally=ParseErrors())
    assert reader is not None
    line = made.lines(made.heartbeats(0)[:1])

    assert list(reader.feed(line[:-1])) == []
    assert len(list(reader.feed(line[-1:]))) == 1


def test_only_recording_file_names_are_recognised() -> None:
    assert line_reader("run.json", job_map=PLACES, tally=ParseErrors()) is None
    assert line_reader("hb_rank0.jsonl.tmp", job_map=PLACES, tally=ParseErrors()) is None
    assert {
        name: dump_rank(name) for name in ("fr_rank3.json", "fr_rank12.pickle", "fr_0", "st_7", "nccl_trace_rank_4")
    } == {
        "fr_rank3.json": 3,
        "fr_rank12.pickle": 12,
        "fr_0": 0,
        "st_7": 7,
        "nccl_trace_rank_4": 4,
    }
    assert dump_rank("fr_rank.json") is None
    assert is_recorded("run.json")
    assert is_recorded("seen_node5.jsonl")
    assert not is_recorded("../hb_rank0.jsonl")
