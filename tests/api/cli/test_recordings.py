"""Opening the folder of a recording: other paths are refused in one line with the file and the expected content."""

import tracemalloc
from pathlib import Path

import pytest

from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.faults.recordings import open_recording
from faults.readers import read
from tests.faults.readers import made


def written(folder: Path) -> Path:
    for name, data in made.folder().items():
        (folder / name).write_bytes(data)
    return folder


def refusal(path: Path) -> str:
    with pytest.raises(CommandError) as raised:
        open_recording(path)
    assert raised.value.exit_code == EXIT_BAD_INPUT
    (line,) = raised.value.lines
    return line


def test_a_folder_reads_the_same_as_its_files(tmp_path: Path) -> None:
    assert open_recording(written(tmp_path)) == read(made.folder())


def test_other_files_and_folders_are_ignored(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"{")
    (tmp_path / "hb_rank7.jsonl").mkdir()

    assert open_recording(tmp_path) == read(made.folder())


def test_a_path_that_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_bytes(b'{"n": 0}')
    expected = (
        "expected the folder of a recording (run.json and the files of `fleetwright faults record`), or what a stopped "
        "job left: Flight Recorder dumps, NCCL RAS or Inspector output"
    )

    assert refusal(tmp_path / "none") == f"{tmp_path}/none: does not exist, {expected}"
    assert refusal(tmp_path / "file") == f"{tmp_path}/file: is not a folder, {expected}"
    assert refusal(tmp_path / "empty") == (
        f"{tmp_path}/empty: holds no usable dump of Flight Recorder, "
        f"and no usable output of NCCL RAS or NCCL Inspector; {expected}"
    )
    assert refusal(tmp_path / "broken") == f"{tmp_path}/broken/run.json: n: expected a whole number from 1 to 131,072"


def test_a_very_long_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    written(tmp_path)
    with (tmp_path / "coll_rank0.jsonl").open("ab") as file:
        file.write(b"\n")
        file.truncate(file.tell() + (64 << 20))  # zero bytes, which cost no disk
    tracemalloc.start()
    try:
        recording = open_recording(tmp_path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert recording.observations == read(made.folder()).observations
    assert recording.malformed == {"coll: line too long": 1}
    assert peak_bytes < 32 << 20
