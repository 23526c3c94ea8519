"""`fleetwright place --current` and `place check`: few moves, when to make them, and what they cost."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.api.cli.place.examples import EXAMPLE, EXPERTS, ROWS, SHAPE, loads, read, written
from tests.testbed.cli import Cli


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "placement.json"


class TestMoving:
    @pytest.fixture
    def now(self, cli: Cli, tmp_path: Path) -> Path:
        path = tmp_path / "now.json"
        assert cli("place", EXAMPLE, *SHAPE, "-o", path).code == 0
        return path

    @pytest.fixture
    def drifted(self, tmp_path: Path) -> Path:
        factors = np.random.default_rng(3).uniform(0.6, 1.6, (ROWS, EXPERTS))
        return written(tmp_path / "drifted.json", (np.array(loads()) * factors).round().tolist())

    def test_no_copy_moves_for_unchanged_loads(self, cli: Cli, now: Path) -> None:
        summary = cli("place", EXAMPLE, *SHAPE, "--current", now, "--format", "json").json
        assert summary["moved_copies"] == 0
        assert summary["predictions"]["before"]["what"] == "current"

    def test_few_copies_move_to_meet_the_imbalance_ceiling(self, cli: Cli, now: Path, drifted: Path, out: Path) -> None:
        command = ("place", drifted, *SHAPE, "--current", now, "--format", "json")
        summary = cli(*command, "-o", out).json
        assert summary["predictions"]["before"]["imbalance"]["mean"] > 1.05
        assert summary["imbalance"]["mean"] <= 1.05
        moved = sum(
            len({(slot // 5, expert) for slot, expert in enumerate(new)} - {(s // 5, e) for s, e in enumerate(old)})
            for new, old in zip(read(out).physical_to_logical_map, read(now).physical_to_logical_map, strict=True)
        )
        assert 0 < summary["moved_copies"] == moved < ROWS * 40 * 0.2
        bounded = cli(*command, "--max-moves", "3").json
        assert bounded["moved_copies"] <= 3
        assert bounded["imbalance"]["mean"] <= summary["predictions"]["before"]["imbalance"]["mean"]

    def test_a_bandwidth_for_moves_adds_a_schedule(self, cli: Cli, now: Path, drifted: Path, out: Path) -> None:
        pace = ("--move-gb-per-s", "5", "--node-gb-per-s", "10", "--expert-bytes", str(10**9))
        done = cli("place", drifted, *SHAPE, "--current", now, *pace, "-o", out)
        placement = read(out)
        assert placement.moves is not None
        assert placement.moves.copies == placement.moved_copies
        assert placement.moves.bytes == placement.moves.copies * 10**9
        assert placement.moves.batches[-1].end_s == placement.moves.duration_s
        assert placement.moves.batches[-1].imbalance == pytest.approx(placement.imbalance.mean)
        line = next(line for line in done.stdout.splitlines() if "copies move" in line)
        assert line.endswith(f" s in {len(placement.moves.batches)} batches")
        again = cli("place", drifted, *SHAPE, "--current", now, *pace, "--format", "json").json
        assert again["moves"] == json.loads(out.read_text())["moves"]

    def test_a_known_model_gives_the_size_of_a_copy(self, cli: Cli, tmp_path: Path) -> None:
        rng = np.random.default_rng(1)
        path, now = tmp_path / "loads.npy", tmp_path / "now.json"
        np.save(path, rng.uniform(1, 9, (26, 64)).round(3))
        shape = ("--slots", "64", "--gpus", "8", "--nodes", "1", "--model", "DeepSeek-V2-Lite")
        assert cli("place", path, *shape, "-o", now).code == 0
        pace = ("--current", now, "--move-gb-per-s", "5")
        moves = cli("place", path, *shape, *pace, "--format", "json").json["moves"]
        assert (moves["copies"], moves["expert_bytes"]) == (0, 3 * 2048 * 1408)
        other = tmp_path / "other.npy"
        np.save(other, rng.uniform(1, 9, (26, 64)).round(3))
        assessment = cli("place", "check", now, "--loads", other, *pace[2:], "--format", "json")
        assert json.loads(assessment.stdout)["moves"]["expert_bytes"] == 3 * 2048 * 1408

    def test_an_engines_file_can_be_the_current_placement(self, cli: Cli, now: Path, tmp_path: Path) -> None:
        export_placement = tmp_path / "sglang.json"
        assert cli("place", "export", now, "--engine", "sglang", "-o", export_placement).code == 0
        summary = cli("place", EXAMPLE, *SHAPE, "--current", export_placement, "--format", "json").json
        assert summary["moved_copies"] == 0

    def test_duplicates_of_other_planners_are_accepted(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        duplicates = [[0, 0, *range(1, 32), *range(1, 8)]] * ROWS
        now = written(tmp_path / "now.json", {"physical_to_logical_map": duplicates})
        summary = cli("place", EXAMPLE, *SHAPE, "--current", now, "-o", out, "--format", "json").json
        assert summary["provenance"]["current"]["format"] == "sglang-placement"
        assert summary["moved_copies"] >= ROWS
        done = cli("place", EXAMPLE, *SHAPE, "--current", now, "--max-moves", "1")
        assert "--max-moves: must be at least 6, got 1" in done.refused[0]

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            (("--slots", "48", "--gpus", "8", "--nodes", "2"), "slots: must be 48"),
            (("--slots", "40", "--gpus", "4", "--nodes", "2"), "gpus: must be 4"),
            (("--slots", "40", "--gpus", "8", "--nodes", "4"), "nodes: must be 4"),
        ],
    )
    def test_a_placement_of_another_shape_is_refused(
        self, cli: Cli, now: Path, out: Path, shape: tuple[str, ...], message: str
    ) -> None:
        done = cli("place", EXAMPLE, *shape, "--current", now, "-o", out)
        assert done.code == 2
        assert any(line.startswith(f"{now}: {message}") for line in done.refused)
        assert not out.exists()

    def test_a_placement_of_another_model_is_refused(self, cli: Cli, now: Path, tmp_path: Path, out: Path) -> None:
        fewer = written(tmp_path / "fewer.json", [row[:16] for row in loads()])
        done = cli("place", fewer, *SHAPE, "--current", now, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert f"{now}: experts: must be 16 as requested, got 32: a placement of another layout" in done.refused


class TestChecking:
    @pytest.fixture
    def made(self, cli: Cli, tmp_path: Path) -> Path:
        path = tmp_path / "made.json"
        assert cli("place", EXAMPLE, *SHAPE, "-o", path).code == 0
        return path

    def test_a_placement_is_kept_for_its_own_loads(self, cli: Cli, made: Path) -> None:
        done = cli("place", "check", made, "--loads", EXAMPLE)
        assert (done.code, done.stdout.splitlines()[-1]) == (0, "wait: the mean of 1.0006 is within 1.05")

    def test_changed_loads_are_reported_with_gain_and_number_of_moves(
        self, cli: Cli, made: Path, tmp_path: Path
    ) -> None:
        other = written(tmp_path / "other.json", [row[::-1] for row in loads()])
        done = cli("place", "check", made, "--loads", other, "--format", "json")
        assessment = json.loads(done.stdout)
        assert (done.code, assessment["holds"]) == (1, False)
        assert assessment["imbalance"]["mean"] > 1.05 >= assessment["after_moves"]
        assert 0 < assessment["moved_copies"] <= assessment["fresh_moved_copies"]
        assert cli("place", "check", made, "--loads", other).stdout.splitlines()[-1].startswith("act: ")

    def test_several_load_windows_give_a_forecast(self, cli: Cli, made: Path) -> None:
        done = cli("place", "check", made, "--loads", EXAMPLE, "--loads", EXAMPLE, "--loads", EXAMPLE, "-o", "json")
        assert done.json["expected"]

    def test_between_the_thresholds_only_moves_in_progress_continue(self, cli: Cli, made: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.json", [row[::-1] for row in loads()])
        levels = ("place", "check", made, "--loads", other, "--act-above", "5", "--settle-at", "1.1")
        waiting = cli(*levels)
        assert (waiting.code, waiting.stdout.splitlines()[-1].split(": ")[0]) == (0, "wait")
        assert waiting.stdout.splitlines()[-1].endswith("is not above 5")
        continued = cli(*levels, "--under-way")
        assert (continued.code, continued.stdout.splitlines()[-1][:25]) == (1, "act: moves are under way,")

    def test_moves_that_cost_more_than_they_gain_wait(self, cli: Cli, made: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.json", [row[::-1] for row in loads()])
        pace = ("--move-gb-per-s", "0.1", "--expert-bytes", str(10**9))
        check_command = ("place", "check", made, "--loads", other, *pace)
        short, long = (cli(*check_command, "--window-s", seconds) for seconds in ("100", "1000000"))
        assert (short.code, long.code) == (0, 1)
        assert "of which 1.5 times must be gained" in short.stdout
        assert "few moves: " in long.stdout
        assessment = json.loads(cli(*check_command, "--window-s", "100", "--format", "json").stdout)
        assert not assessment["act"]
        assert assessment["gain_gpu_s"] < 1.5 * assessment["cost_gpu_s"] == 1.5 * assessment["moves"]["duration_s"] * 8

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--act-above", "1.01", "--settle-at", "1.05"), "--settle-at: must be from 1 to --act-above (1.01)"),
            (("--window-s", "0"), "--window-s: must be above 0, got 0"),
            (("--moe-share", "2"), "--moe-share: must be from 0 to 1, got 2"),
            (("--move-gb-per-s", "5"), "--move-gb-per-s: needs --expert-bytes"),
            (("--move-gb-per-s", "-5", "--expert-bytes", "9"), "--move-gb-per-s: must be above 0, got -5"),
            (("--node-gb-per-s", "5"), "--node-gb-per-s: needs --move-gb-per-s"),
        ],
    )
    def test_invalid_options_of_check_are_reported(
        self, cli: Cli, made: Path, options: tuple[str, ...], message: str
    ) -> None:
        done = cli("place", "check", made, "--loads", EXAMPLE, *options)
        assert done.code == 2
        assert done.refused[0].startswith(message), done.stderr

    def test_loads_of_another_model_are_refused(self, cli: Cli, made: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.json", [row[:16] for row in loads()])
        done = cli("place", "check", made, "--loads", other)
        assert done.code == 2
        assert done.refused == [f"{other}: loads: must have 32 experts per layer, as the placement, got 16"]
