"""Invalid input to `fleetwright place`: one line with field and range, and no output file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.cli.place.examples import EXAMPLE, ROWS, SHAPE, loads, written
from tests.testbed.cli import Cli


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "placement.json"


WRONG_OPTIONS = [
    (("--slots", "41"), "--slots: must be a multiple of the number of GPUs (8), got 41; nearest: 40 or 48"),
    (("--slots", "24"), "--slots: must be at least the number of experts (32), got 24"),
    (("--slots", "0"), "--slots: input should be greater than or equal to 1, got 0"),
    (("--nodes", "3"), "--nodes: must divide the number of GPUs (8), got 3"),
    (("--groups", "5"), "--groups: must divide the number of experts (32), got 5"),
    (("--max-moves", "5"), "--max-moves: needs --current, the placement"),
    (("--move-gb-per-s", "5"), "--move-gb-per-s: needs --current, the placement"),
    (("--move-gb-per-s", "5"), "--move-gb-per-s: needs --expert-bytes or --model"),
    (("--move-gb-per-s", "0", "--expert-bytes", "5"), "--move-gb-per-s: must be above 0, got 0"),
    (("--node-gb-per-s", "5"), "--node-gb-per-s: needs --move-gb-per-s"),
    (("--model", "Mixtral"), "Mixtral-8x7B"),
    (("--model", "DeepSeek-V3"), "must have 256 experts per layer, as DeepSeek-V3, got 32"),
    (("--max-imbalance", "0.5"), "--max-imbalance"),
    (("--dispatch", "random"), "'random' is not one of 'equal', 'nearest'"),
]


class TestWrongInput:
    @pytest.mark.parametrize("option", ["-o", "--plot"])
    def test_a_missing_folder_is_reported_before_anything_is_written(
        self, cli: Cli, tmp_path: Path, option: str
    ) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "-o", tmp_path / "p.json", option, tmp_path / "none" / "x.png")
        assert done.code == 2
        assert "there is no folder" in done.refused[0]
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
    def test_invalid_options_are_reported(self, cli: Cli, out: Path, options: tuple[str, ...], message: str) -> None:
        done = cli("place", EXAMPLE, *SHAPE, *options, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(message in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda rows: rows[2].__setitem__(5, 0), "[2][5]: must be above 0"),
            (lambda rows: rows[2].__setitem__(5, 0), "(--least-tokens gives them some)"),
            (lambda rows: rows[2].__setitem__(5, -1), "[2][5]: must be above 0"),
            (lambda rows: rows[2].__setitem__(5, float("nan")), "[2][5]: must be a finite number"),
            (lambda rows: rows[2].pop(), "[2]"),
            (lambda rows: rows[2].__setitem__(5, "many"), "[2][5]"),
            (lambda rows: rows.clear(), "load"),
        ],
    )
    def test_invalid_loads_are_reported(self, cli: Cli, tmp_path: Path, out: Path, change: Any, message: str) -> None:
        rows = loads()
        change(rows)
        path = written(tmp_path / "loads.json", rows)
        done = cli("place", path, *SHAPE, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(line.startswith(str(path)) and message in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("speeds", "message"),
        [
            ([1.0] * 7, "speeds.json: gpu_speeds: must be one number per GPU (8), got 7"),
            ([1.0] * 7 + [0.0], "speeds.json: gpu_speeds[7]: input should be greater than or equal to 0.001"),
            ({"a": 1}, "speeds.json: expected a JSON list"),
            ([1.0] * 7 + ["fast"], "speeds.json: gpu_speeds[7]: expected a number"),
        ],
    )
    def test_invalid_speeds_are_reported(self, cli: Cli, tmp_path: Path, out: Path, speeds: Any, message: str) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--gpu-speeds", written(tmp_path / "speeds.json", speeds), "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(message in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("layers", "high", "message"),
        [(ROWS - 1, 31, "as many layers as the loads (6), got 5"), (ROWS, 32, "from 0 to 31")],
    )
    def test_invalid_traces_are_reported(self, cli: Cli, tmp_path: Path, layers: int, high: int, message: str) -> None:
        out = tmp_path / "placement.json"
        chosen = np.zeros((4, layers, 2), dtype=np.int16)
        chosen[..., 1] = high
        path = tmp_path / "trace.npz"
        np.savez(path, trace=chosen)
        done = cli("place", EXAMPLE, *SHAPE, "--trace", path, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(message in line for line in done.refused), done.stderr

    def test_a_missing_file_is_reported(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("place", tmp_path / "none.npz", *SHAPE)
        assert (done.code, done.refused) == (2, [f"{tmp_path}/none.npz: No such file or directory"])

    def test_a_missing_output_folder_is_reported(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "-o", tmp_path / "none" / "placement.json")
        assert done.code == 2
        assert "there is no folder" in done.stderr

    def test_invalid_input_keeps_an_older_output_file(self, cli: Cli, out: Path) -> None:
        out.write_text("older")
        cli("place", EXAMPLE, *SHAPE, "--nodes", "3", "-o", out)
        assert out.read_text() == "older"
        assert list(out.parent.iterdir()) == [out]
