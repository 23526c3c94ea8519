"""`fleetwright place`: placement.json, summary, heat map, engines' files; and wrong input, which leaves nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placement.document import Placement
from tests.api.cli.conftest import Cli, Shell

EXAMPLE = Path(__file__).parents[3] / "examples" / "expert-loads.json"
SHAPE = ("--slots", "40", "--gpus", "8", "--nodes", "2")
PNG = b"\x89PNG\r\n\x1a\n"
ROWS, EXPERTS = 6, 32


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "placement.json"


def loads() -> list[list[float]]:
    found: list[list[float]] = json.loads(EXAMPLE.read_text())["load"]
    return found


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def read(path: Path) -> Placement:
    return Placement.model_validate_json(path.read_bytes())


class TestPlacing:
    def test_the_document_has_what_the_contract_names(self, cli: Cli, out: Path) -> None:
        summary = cli("place", EXAMPLE, *SHAPE, "-o", out, "--format", "json").json
        document = json.loads(out.read_text())
        rows = document["physical_to_logical_map"]
        assert len(rows) == ROWS
        assert all(sorted(set(row)) == list(range(EXPERTS)) and len(row) == 40 for row in rows)
        gpus = [[slot // 5 for slot in range(40)]] * ROWS
        assert all(len(set(zip(*pair, strict=True))) == 40 for pair in zip(gpus, rows, strict=True))
        assert document["imbalance"].keys() == {"mean", "max", "per_layer"}
        assert {"mean", "per_layer"} <= document["bound"].keys()
        assert document["bound"]["mean"] <= document["imbalance"]["mean"] < 1.01
        assert (document["remote_nodes_per_token"], document["moved_copies"]) == (None, None)
        assert document["solve_s"] >= 0
        assert document["loads"] == loads()
        assert summary == {name: value for name, value in document.items() if name in summary}
        assert set(document) - set(summary) == {"physical_to_logical_map", "loads"}

    def test_what_it_was_made_from_is_remembered(self, cli: Cli) -> None:
        provenance = cli("place", EXAMPLE, EXAMPLE, *SHAPE, "--seed", "5", "--format", "json").json["provenance"]
        assert [source["name"] for source in provenance["loads"]] == [str(EXAMPLE)] * 2
        assert len(provenance["loads"][0]["sha256"]) == 64
        assert (provenance["windows"], provenance["seed"], provenance["version"]) == (2, 5, "0.1.0")

    def test_the_same_question_has_the_same_answer(self, cli: Cli, tmp_path: Path) -> None:
        made = []
        for name in ("a", "b"):
            cli("place", EXAMPLE, *SHAPE, "-o", tmp_path / name)
            made.append(json.loads((tmp_path / name).read_text()) | {"solve_s": 0})
        assert made[0] == made[1]

    def test_as_people_read_it(self, cli: Cli) -> None:
        done = cli("place", EXAMPLE, *SHAPE)
        first, empty, heading, before, after, bound, *_rest = done.stdout.splitlines()
        assert (done.code, done.stderr, empty) == (0, "", "")
        assert first.startswith("6 layers of 32 experts in 40 slots on 8 GPUs of 2 nodes; solved in ")
        assert heading.split() == ["imbalance", "worst", "layer", "remote", "nodes"]
        assert before.startswith("before: contiguous")
        assert float(bound.split()[1]) <= float(after.split()[1]) < 1.01

    @pytest.mark.parametrize("form", ["npz", "npy", "csv"])
    def test_loads_come_in_many_forms(self, cli: Cli, tmp_path: Path, out: Path, form: str) -> None:
        counts = np.array(loads())
        path = tmp_path / f"loads.{form}"
        match form:
            case "npz":
                np.savez(path, load=counts)
            case "npy":
                np.save(path, counts)
            case _:
                path.write_text("\n".join(",".join(f"{tokens:.0f}" for tokens in row) for row in counts) + "\n")
        assert cli("place", path, *SHAPE, "-o", out).code == 0
        assert read(out).expert_loads.total.tolist() == counts.tolist()

    def test_loads_may_come_on_stdin(self, cli: Cli) -> None:
        done = cli("place", "-", *SHAPE, "--format", "json", stdin=EXAMPLE.read_bytes())
        assert done.json["provenance"]["loads"][0]["name"] == "stdin"

    def test_a_known_model_gives_layers_their_numbers(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        rng = np.random.default_rng(1)
        path = tmp_path / "loads.npy"
        np.save(path, rng.uniform(1, 9, (26, 64)).round(3))
        done = cli(
            "place", path, "--slots", "64", "--gpus", "8", "--nodes", "1", "--model", "DeepSeek-V2-Lite", "-o", out
        )
        assert done.code == 0, done.stderr
        placement = read(out)
        assert (placement.model, placement.hidden_layers, placement.layers) == (
            "DeepSeek-V2-Lite",
            27,
            tuple(range(1, 27)),
        )

    def test_slower_gpus_get_less(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        speeds = written(tmp_path / "speeds.json", [1.0] * 4 + [0.5] * 4)
        summary = cli("place", EXAMPLE, *SHAPE, "--gpu-speeds", speeds, "-o", out, "--format", "json").json
        assert summary["imbalance"]["mean"] < 1.1
        assert read(out).layout.speeds.tolist() == [1.0] * 4 + [0.5] * 4

    def test_memory_may_differ_by_gpu(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        slots = written(tmp_path / "slots.json", [6, 6, 6, 6, 4, 4, 4, 4])
        assert cli("place", EXAMPLE, *SHAPE, "--gpu-slots", slots, "-o", out).code == 0
        assert read(out).layout.slots_of_gpu.tolist() == [6, 6, 6, 6, 4, 4, 4, 4]

    def test_a_ceiling_out_of_reach_is_no_and_what_came_nearest_is_written(self, cli: Cli, out: Path) -> None:
        done = cli("place", EXAMPLE, "--slots", "32", *SHAPE[2:], "--max-imbalance", "1.0", "-o", out)
        assert done.code == 1
        assert "above the ceiling of 1" in done.stderr
        assert not read(out).holds

    def test_a_plan_for_the_nearest_copy_is_better_there(self, cli: Cli) -> None:
        means = {
            rule: cli("place", EXAMPLE, *SHAPE, "--dispatch", rule, "--format", "json").json["predictions"]
            for rule in ("equal", "nearest")
        }
        assert means["nearest"]["imbalance_by_rule"]["nearest"] < means["equal"]["imbalance_by_rule"]["nearest"]


class TestTraffic:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        """Tokens that take four experts of one half, so that halves on nodes of their own spare the network."""
        rng = np.random.default_rng(2)
        halves = rng.integers(0, 2, size=(200, ROWS))
        chosen = np.stack([rng.permutation(16)[:4] for _ in range(200 * ROWS)]).reshape(200, ROWS, 4)
        path = tmp_path / "trace.npz"
        np.savez(path, trace=(chosen * 2 + halves[..., np.newaxis]).astype(np.int16))
        return path

    def test_fewer_nodes_are_reached_under_the_ceiling(self, cli: Cli, trace: Path, tmp_path: Path) -> None:
        counts = np.zeros((ROWS, EXPERTS))
        for token in np.load(trace)["trace"]:
            for layer, chosen in enumerate(token):
                counts[layer, chosen] += 1
        path = tmp_path / "loads.npy"
        np.save(path, counts + 1)
        question = ("place", path, *SHAPE, "--trace", trace, "--format", "json")
        found = cli(*question, "--max-imbalance", "1.1").json
        assert found["imbalance"]["mean"] <= 1.1
        assert found["remote_nodes"]["source"] == "trace"
        assert found["remote_nodes_per_token"] < found["predictions"]["before"]["remote_nodes_per_token"] * 0.8

    def test_groups_stand_in_for_a_trace_and_say_so(self, cli: Cli) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--groups", "4", "--format", "json")
        assert done.json["remote_nodes"]["source"] == "modelled"
        assert "modelled tokens" in cli("place", EXAMPLE, *SHAPE, "--groups", "4").stdout


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

    def test_nothing_moves_without_need(self, cli: Cli, now: Path) -> None:
        summary = cli("place", EXAMPLE, *SHAPE, "--current", now, "--format", "json").json
        assert summary["moved_copies"] == 0
        assert summary["predictions"]["before"]["what"] == "current"

    def test_few_copies_move_back_under_the_ceiling(self, cli: Cli, now: Path, drifted: Path, out: Path) -> None:
        question = ("place", drifted, *SHAPE, "--current", now, "--format", "json")
        summary = cli(*question, "-o", out).json
        assert summary["predictions"]["before"]["imbalance"]["mean"] > 1.05
        assert summary["imbalance"]["mean"] <= 1.05
        moved = sum(
            len({(slot // 5, expert) for slot, expert in enumerate(new)} - {(s // 5, e) for s, e in enumerate(old)})
            for new, old in zip(read(out).physical_to_logical_map, read(now).physical_to_logical_map, strict=True)
        )
        assert 0 < summary["moved_copies"] == moved < ROWS * 40 * 0.2
        bounded = cli(*question, "--max-moves", "3").json
        assert bounded["moved_copies"] <= 3
        assert bounded["imbalance"]["mean"] <= summary["predictions"]["before"]["imbalance"]["mean"]

    def test_what_an_engine_has_loaded_can_be_moved_from(self, cli: Cli, now: Path, tmp_path: Path) -> None:
        exported = tmp_path / "sglang.json"
        assert cli("place", "export", now, "--engine", "sglang", "-o", exported).code == 0
        summary = cli("place", EXAMPLE, *SHAPE, "--current", exported, "--format", "json").json
        assert summary["moved_copies"] == 0

    @pytest.mark.parametrize(
        ("shape", "said"),
        [
            (("--slots", "48", "--gpus", "8", "--nodes", "2"), "slots: must be 48"),
            (("--slots", "40", "--gpus", "4", "--nodes", "2"), "gpus: must be 4"),
            (("--slots", "40", "--gpus", "8", "--nodes", "4"), "nodes: must be 4"),
        ],
    )
    def test_a_placement_of_another_shape_is_refused(
        self, cli: Cli, now: Path, out: Path, shape: tuple[str, ...], said: str
    ) -> None:
        done = cli("place", EXAMPLE, *shape, "--current", now, "-o", out)
        assert done.code == 2
        assert any(line.startswith(f"{now}: {said}") for line in done.refused)
        assert not out.exists()

    def test_a_placement_of_another_model_is_refused(self, cli: Cli, now: Path, tmp_path: Path, out: Path) -> None:
        fewer = written(tmp_path / "fewer.json", [row[:16] for row in loads()])
        done = cli("place", fewer, *SHAPE, "--current", now, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert f"{now}: experts: must be 16 as asked for, got 32: a placement of another shape" in done.refused


class TestExport:
    @pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm", "ascend"])
    def test_every_engine_has_its_file(self, cli: Cli, out: Path, tmp_path: Path, engine: str) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        done = cli("place", "export", out, "--engine", engine)
        assert (done.code, done.stderr) == (0, "")
        target = tmp_path / "for-the-engine"
        assert cli("place", "export", out, "--engine", engine, "-o", target).stdout == ""
        assert target.read_text() == done.stdout

    def test_sglang_gets_its_one_key(self, cli: Cli, out: Path) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        exported = cli("place", "export", out, "--engine", "sglang").json
        assert exported == {"physical_to_logical_map": [list(row) for row in read(out).physical_to_logical_map]}

    def test_what_is_no_placement_is_refused(self, cli: Cli, tmp_path: Path) -> None:
        broken = written(tmp_path / "broken.json", {"slots": 4, "gpus": 2, "nodes": 1})
        done = cli("place", "export", broken, "--engine", "vllm")
        assert done.code == 2
        assert any(line.startswith(f"{broken}: physical_to_logical_map: is required") for line in done.refused)

    def test_a_map_that_was_changed_by_hand_is_refused(self, cli: Cli, out: Path) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        document = json.loads(out.read_text())
        document["physical_to_logical_map"][2] = [0] * 40
        written(out, document)
        done = cli("place", "export", out, "--engine", "vllm")
        assert done.code == 2
        assert any("physical_to_logical_map[2]: must hold every expert" in line for line in done.refused)


class TestPlot:
    def test_a_heat_map_is_drawn(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "heat.png"
        done = cli("place", EXAMPLE, *SHAPE, "--plot", path)
        assert (done.code, done.stderr) == (0, "")
        assert path.read_bytes().startswith(PNG)

    def test_a_kind_of_plot_that_is_none_is_refused_first(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--plot", tmp_path / "heat.gif", "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert "must end with one of .png, .svg, .pdf" in done.refused[0]


WRONG_OPTIONS = [
    (("--slots", "41"), "--slots: must be a multiple of the number of GPUs (8), got 41; nearest: 40 or 48"),
    (("--slots", "24"), "--slots: must be at least the number of experts (32), got 24"),
    (("--slots", "0"), "--slots: input should be greater than or equal to 1, got 0"),
    (("--nodes", "3"), "--nodes: must divide the number of GPUs (8), got 3"),
    (("--groups", "5"), "--groups: must divide the number of experts (32), got 5"),
    (("--max-moves", "5"), "--max-moves: needs the placement that is loaded now"),
    (("--model", "Mixtral"), "Mixtral-8x7B"),
    (("--model", "DeepSeek-V3"), "must have 256 experts per layer, as DeepSeek-V3, got 32"),
    (("--max-imbalance", "0.5"), "--max-imbalance"),
    (("--dispatch", "random"), "'random' is not one of 'equal', 'nearest'"),
]


class TestWrongInput:
    @pytest.mark.parametrize(("options", "said"), WRONG_OPTIONS)
    def test_options(self, cli: Cli, out: Path, options: tuple[str, ...], said: str) -> None:
        done = cli("place", EXAMPLE, *SHAPE, *options, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(said in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda rows: rows[2].__setitem__(5, 0), "[2][5]: must be above 0"),
            (lambda rows: rows[2].__setitem__(5, -1), "[2][5]: must be above 0"),
            (lambda rows: rows[2].__setitem__(5, float("nan")), "[2][5]: must be a finite number"),
            (lambda rows: rows[2].pop(), "[2]"),
            (lambda rows: rows[2].__setitem__(5, "many"), "[2][5]"),
            (lambda rows: rows.clear(), "load"),
        ],
    )
    def test_loads(self, cli: Cli, tmp_path: Path, out: Path, change: Any, said: str) -> None:
        rows = loads()
        change(rows)
        path = written(tmp_path / "loads.json", rows)
        done = cli("place", path, *SHAPE, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(line.startswith(str(path)) and said in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("speeds", "said"),
        [
            ([1.0] * 7, "speeds.json: gpu_speeds: must be one number per GPU (8), got 7"),
            ([1.0] * 7 + [0.0], "speeds.json: gpu_speeds[7]: input should be greater than or equal to 0.001"),
            ({"a": 1}, "speeds.json: expected a JSON list"),
            ([1.0] * 7 + ["fast"], "speeds.json: gpu_speeds[7]: expected a number"),
        ],
    )
    def test_speeds(self, cli: Cli, tmp_path: Path, out: Path, speeds: Any, said: str) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--gpu-speeds", written(tmp_path / "speeds.json", speeds), "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(said in line for line in done.refused), done.stderr

    @pytest.mark.parametrize(
        ("layers", "high", "said"),
        [(ROWS - 1, 31, "as many layers as the loads (6), got 5"), (ROWS, 32, "from 0 to 31")],
    )
    def test_traces(self, cli: Cli, tmp_path: Path, layers: int, high: int, said: str) -> None:
        out = tmp_path / "placement.json"
        chosen = np.zeros((4, layers, 2), dtype=np.int16)
        chosen[..., 1] = high
        path = tmp_path / "trace.npz"
        np.savez(path, trace=chosen)
        done = cli("place", EXAMPLE, *SHAPE, "--trace", path, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(said in line for line in done.refused), done.stderr

    def test_files_that_are_not_there(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("place", tmp_path / "none.npz", *SHAPE)
        assert (done.code, done.refused) == (2, [f"{tmp_path}/none.npz: No such file or directory"])

    def test_a_place_that_cannot_be_written_keeps_what_was_there(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "-o", tmp_path / "none" / "placement.json")
        assert done.code == 1
        assert "No such file or directory" in done.stderr

    def test_wrong_input_leaves_an_older_file_alone(self, cli: Cli, out: Path) -> None:
        out.write_text("older")
        cli("place", EXAMPLE, *SHAPE, "--nodes", "3", "-o", out)
        assert out.read_text() == "older"
        assert list(out.parent.iterdir()) == [out]


def test_place_without_anything_lists_its_commands(cli: Cli) -> None:
    done = cli("place")
    assert (done.code, done.stdout) == (2, "")
    assert all(f"  {name} " in done.stderr for name in ("make", "check", "export"))


def test_its_help_needs_no_compiled_code(shell: Shell) -> None:
    done = shell("place", "make", "--help")
    assert done.code == 0
    assert "--current FILE" in done.stdout


class TestChecking:
    @pytest.fixture
    def made(self, cli: Cli, tmp_path: Path) -> Path:
        path = tmp_path / "made.json"
        assert cli("place", EXAMPLE, *SHAPE, "-o", path).code == 0
        return path

    def test_on_its_own_loads_it_is_kept(self, cli: Cli, made: Path) -> None:
        done = cli("place", "check", made, "--loads", EXAMPLE)
        assert (done.code, done.stdout.splitlines()[-1]) == (0, "keep it: the mean is under the ceiling of 1.05")

    def test_on_others_it_says_what_acting_brings_and_costs(self, cli: Cli, made: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.json", [row[::-1] for row in loads()])
        done = cli("place", "check", made, "--loads", other, "--format", "json")
        verdict = json.loads(done.stdout)
        assert (done.code, verdict["holds"]) == (1, False)
        assert verdict["imbalance"]["mean"] > 1.05 >= verdict["after_moves"]
        assert 0 < verdict["moved_copies"] <= verdict["fresh_moved_copies"]
        assert cli("place", "check", made, "--loads", other).stdout.splitlines()[-1].startswith("act: ")

    def test_windows_tell_what_comes_next(self, cli: Cli, made: Path) -> None:
        done = cli("place", "check", made, "--loads", EXAMPLE, "--loads", EXAMPLE, "--loads", EXAMPLE, "-o", "json")
        assert done.json["expected"]

    def test_loads_of_another_model_are_refused(self, cli: Cli, made: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.json", [row[:16] for row in loads()])
        done = cli("place", "check", made, "--loads", other)
        assert done.code == 2
        assert done.refused == [f"{other}: loads: must have 32 experts per layer, as the placement, got 16"]
