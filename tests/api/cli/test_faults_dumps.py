"""`faults replay` of the dumps of a stopped job, as they lie in a folder, and its page."""

import json
import pickle
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from api.cli.faults.wait_page import columns, wait_page
from faults.hangs import findings_of_dumps
from faults.job_state import JobState
from faults.readers import ParseErrors, read_loose
from faults.readers.flight import parse_dump
from tests.api.cli.test_faults_replay import KEYS, replay_json, run_replay
from tests.faults.readers import made
from tests.testbed.stopped_job_cases import Case
from tests.testbed.stopped_jobs import Shape, Stop, StoppedJob

PUBLIC = made.PUBLIC / "nccl"


def stopped(culprit: int, *, how: Stop = Stop.PROCESSOR, data: int = 2) -> Case:
    shape = Shape(
        tensor=2, context=1, data=data, pipeline=2, expert=1, microbatches=3, layers=1, run_ahead=4, prefetch=True
    )
    job = StoppedJob(shape)
    job.stop(culprit, how, after=0.5)
    job.run()
    dumps = {
        rank: job.dump(rank, entries=200, timed=False, only_active=False, skew_s=0.0) for rank in range(shape.ranks)
    }
    return Case(shape, {culprit: how}, frozenset(), dumps)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Dumps under several names and in both formats, among other files."""
    folder = tmp_path / "left behind"
    folder.mkdir()
    for rank, dump in stopped(5).dumps.items():
        name, content = (
            (f"nccl_trace_rank_{rank}", pickle.dumps(dump, protocol=2))
            if rank % 2
            else (f"_dump_{rank}.json", json.dumps(dump).encode())
        )
        (folder / name).write_bytes(content)
    (folder / "train.log").write_text("step 12\n")
    (folder / "config.json").write_text("{}")
    (folder / "checkpoints").mkdir()
    return folder


def test_the_rank_at_fault_is_named_alone(folder: Path) -> None:
    (found,) = replay_json(folder)
    assert tuple(found) == KEYS
    assert (found["class"], found["scope"], found["rank"], found["node"], found["host"]) == (
        *("noncomm-hang", "rank"),
        *(5, 5, None),
    )


def test_a_job_that_finished_has_no_fault(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"_dump_{rank}").write_text(json.dumps(made.dump(made.entry())))
    assert replay_json(tmp_path) == []


def test_a_damaged_dump_is_counted_and_the_others_are_judged(folder: Path) -> None:
    (folder / "_dump_0.json").write_bytes(b'{"version": "2.9", "pg_config": {')
    done = run_replay(folder)
    assert done.exit_code == 0
    assert "1 malformed and skipped: fr: not JSON" in done.stderr
    assert "rank 5 has not called" in done.stdout


def test_many_dumps_are_parsed_in_several_processes(tmp_path: Path) -> None:
    case = stopped(100, data=34)
    for rank, dump in case.dumps.items():
        (tmp_path / f"_dump_{rank}").write_text(json.dumps(dump))
    assert [each["rank"] for each in replay_json(tmp_path)] == [100]


def test_a_bundle_of_dumps_replays(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.jsonl"
    first = replay_json(folder, "--bundle-out", bundle)
    assert replay_json(bundle) == first


def test_the_page_needs_no_other_file_and_shows_who_waits_for_whom(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run_replay(folder, "--html", page).exit_code == 0
    text = page.read_text()
    assert "rank 5 has not called" in text
    assert not re.search(r"(src|href)=|<script", text)
    picture = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])  # noqa: S314 - our own
    shown = [each.text for each in picture.iter("text")]
    assert "rank 5" in shown
    assert any(line is not None and re.search(r"waits? for 5\b", line) for line in shown)


def test_an_unwritable_page_is_refused_before_any_work(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no folder"):
        run_replay(folder, "--html", tmp_path / "missing" / "report.html")


def test_the_operations_that_wait_for_a_cause_stand_beside_it() -> None:
    recording = _recording(stopped(5))
    state = JobState(recording.job)
    for observation in recording.observations:
        state.observe(observation)
    causes, nearest, *further = columns(findings_of_dumps(state))
    assert [box.ranks for box in causes] == [{5}]
    assert all(5 in box.absent for box in nearest)
    assert all(5 not in box.absent for boxes in further for box in boxes)


def test_names_in_the_page_are_escaped() -> None:
    case = stopped(5)
    for dump in case.dumps.values():
        for entry in dump["entries"]:
            entry["process_group"] = [entry["process_group"][0], "<script>alert(1)</script>"]
    text = wait_page(_recording(case), (), name="<b>")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<b>" not in text


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public dumps are not present")
@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_1st"])
def test_the_public_dumps_name_exactly_the_ranks_at_fault(name: str) -> None:
    truth: dict[str, Any] = json.loads((PUBLIC / "truth.json").read_text())
    assert [each["rank"] for each in replay_json(PUBLIC / name)] == truth[name]["ranks"]


def _recording(case: Case) -> Any:
    tally = ParseErrors()
    dumps = [(rank, parse_dump(json.dumps(dump).encode(), tally=tally)) for rank, dump in case.dumps.items()]
    return read_loose(dumps, (), tally=tally)
