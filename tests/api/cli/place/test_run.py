"""`fleetwright place`: placement.json, summary, heat map and engines' files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placement.formats import Engine
from tests.api.cli.place.examples import EXAMPLE, EXPERTS, PNG, ROWS, SHAPE, loads, read, written
from tests.testbed.cli import Cli, Shell


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "placement.json"


class TestPlacing:
    def test_the_document_has_the_fields_of_the_contract(self, cli: Cli, out: Path) -> None:
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

    def test_the_provenance_names_the_inputs(self, cli: Cli) -> None:
        provenance = cli("place", EXAMPLE, EXAMPLE, *SHAPE, "--seed", "5", "--format", "json").json["provenance"]
        assert [source["name"] for source in provenance["loads"]] == [str(EXAMPLE)] * 2
        assert len(provenance["loads"][0]["sha256"]) == 64
        assert (provenance["windows"], provenance["seed"], provenance["version"]) == (2, 5, "0.2.0")

    def test_the_same_request_has_the_same_result(self, cli: Cli, tmp_path: Path) -> None:
        made = []
        for name in ("a", "b"):
            cli("place", EXAMPLE, *SHAPE, "-o", tmp_path / name)
            made.append(json.loads((tmp_path / name).read_text()) | {"solve_s": 0})
        assert made[0] == made[1]

    def test_the_text_output_has_a_summary_and_a_table(self, cli: Cli) -> None:
        done = cli("place", EXAMPLE, *SHAPE)
        first, empty, heading, before, after, bound, *_rest = done.stdout.splitlines()
        assert (done.code, done.stderr, empty) == (0, "", "")
        assert first.startswith("6 layers of 32 experts in 40 slots on 8 GPUs of 2 nodes; solved in ")
        assert heading.split() == ["imbalance", "worst", "layer", "remote", "nodes"]
        assert before.startswith("before: contiguous")
        assert float(bound.split()[1]) <= float(after.split()[1]) < 1.01

    def test_an_exact_placement_is_no_worse_and_reports_its_gap(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        path = written(tmp_path / "eight.json", [[600, 560, 120, 120, 20, 10, 10, 10]])
        shape = ("--slots", "12", "--gpus", "4", "--nodes", "1")
        search, exact, auto = (
            cli("place", path, *shape, "--method", method, "--time-limit", "60", "-o", out, "--format", "json").json
            for method in ("search", "exact", "auto")
        )
        assert [done["method"] for done in (search, exact, auto)] == ["search", "exact", "exact"]
        assert exact["imbalance"]["mean"] == auto["imbalance"]["mean"] <= search["imbalance"]["mean"]
        assert exact["gap"] <= 2e-6 < search["gap"]
        assert read(out).gap == auto["gap"]
        assert cli("place", path, *shape).stdout.count("integer programs") == 0
        shown = cli("place", path, *shape, "--method", "exact", "--time-limit", "60").stdout
        assert "- proven by integer programs: the mean imbalance is the optimum\n" in shown

    def test_an_exact_placement_for_another_goal_is_refused(self, cli: Cli) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--method", "exact", "--dispatch", "nearest")
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr == "fleetwright: --method: exact must go with dispatch equal or hash\n"

    @pytest.mark.parametrize("form", ["npz", "npy", "csv"])
    def test_loads_are_read_from_several_formats(self, cli: Cli, tmp_path: Path, out: Path, form: str) -> None:
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

    def test_a_known_model_numbers_the_moe_layers(self, cli: Cli, tmp_path: Path, out: Path) -> None:
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

    def test_slower_gpus_get_less_load(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        speeds = written(tmp_path / "speeds.json", [1.0] * 4 + [0.5] * 4)
        summary = cli("place", EXAMPLE, *SHAPE, "--gpu-speeds", speeds, "-o", out, "--format", "json").json
        assert summary["imbalance"]["mean"] < 1.1
        assert read(out).layout.speeds.tolist() == [1.0] * 4 + [0.5] * 4

    def test_slots_may_differ_by_gpu(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        slots = written(tmp_path / "slots.json", [6, 6, 6, 6, 4, 4, 4, 4])
        assert cli("place", EXAMPLE, *SHAPE, "--gpu-slots", slots, "-o", out).code == 0
        assert read(out).layout.slots_of_gpu.tolist() == [6, 6, 6, 6, 4, 4, 4, 4]

    def test_a_missed_ceiling_exits_with_1_and_writes_the_best_placement(self, cli: Cli, out: Path) -> None:
        done = cli("place", EXAMPLE, "--slots", "32", *SHAPE[2:], "--max-imbalance", "1.0", "-o", out)
        assert done.code == 1
        assert "above the ceiling of 1" in done.stderr
        assert not read(out).holds

    def test_a_placement_for_nearest_dispatch_is_better_with_nearest_dispatch(self, cli: Cli) -> None:
        means = {
            rule: cli("place", EXAMPLE, *SHAPE, "--dispatch", rule, "--format", "json").json["predictions"]
            for rule in ("equal", "nearest")
        }
        assert means["nearest"]["imbalance_by_rule"]["nearest"] < means["equal"]["imbalance_by_rule"]["nearest"]

    def test_hash_dispatch_has_the_imbalance_of_equal_dispatch(self, cli: Cli) -> None:
        made = {
            rule: cli("place", EXAMPLE, *SHAPE, "--dispatch", rule, "--format", "json").json
            for rule in ("equal", "hash")
        }
        assert made["hash"]["dispatch"] == "hash"
        assert made["hash"]["imbalance"] == made["equal"]["imbalance"]


TOPOLOGY = """
sites:
  - name: north
    network:
      - {name: "leaf-[1-2]", tier: leaf, uplinks: [spine-1], links_per_uplink: 1, link_gb_per_s: 25}
      - {name: spine-1, tier: spine}
    nodes:
      - {name: "a[1-2]", gpu: H100-SXM, gpus: 4, nic_gb_per_s: 50, leaves: [leaf-1]}
      - {name: b1, gpu: H100-SXM, gpus: 4, nic_gb_per_s: 50, leaves: [leaf-2]}
      - {name: c1, gpu: A100-40GB-SXM, gpus: 2, nic_gb_per_s: 50, leaves: [leaf-2]}
      - {name: cpu, gpus: 0}
"""


class TestNodesByName:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        path = tmp_path / "site.yaml"
        path.write_text(TOPOLOGY)
        return path

    def test_the_topology_gives_nodes_and_link_costs(self, cli: Cli, site: Path, out: Path) -> None:
        on = ("--topology", site, "--on", "a1", "--on", "b1", "--on", "a2")
        done = cli("place", EXAMPLE, "--slots", "48", *on, "--groups", "4", "--max-imbalance", "1.2", "-o", out)
        assert done.code == 0, done.stderr
        found = read(out)
        assert (found.gpus, found.nodes, found.node_names) == (12, 3, ("a1", "a2", "b1"))
        assert found.costs is not None
        assert found.costs.tolist() == [[0, 1, 4], [1, 0, 4], [4, 4, 0]]  # NIC 50 GB/s; 25 by two nodes, 25 by one
        assert found.remote_nodes is not None
        assert found.remote_nodes.cost_per_token is not None
        assert found.remote_nodes_per_token is not None
        assert found.remote_nodes.cost_per_token > found.remote_nodes_per_token
        assert "weighted by link costs" in done.stdout

    def test_gpu_types_differ_in_speed_and_memory(self, cli: Cli, site: Path, out: Path) -> None:
        on = ("--topology", site, "--on", "a1", "--on", "c1")
        limits = ("--expert-bytes", str(10**9), "--memory-share", "0.8")
        assert cli("place", EXAMPLE, "--slots", "44", *on, *limits, "-o", out).code == 0
        found = read(out)
        assert found.node_gpus == (4, 2)
        assert found.gpu_slots is not None
        assert max(found.gpu_slots[4:]) == 5  # 0.8 x 40 GB hold five experts of 6 layers
        assert sum(found.gpu_slots) == 44
        assert found.gpu_speeds is not None
        assert found.gpu_speeds[0] == 1 > found.gpu_speeds[5]
        assert cli("place", "export", out, "--engine", "sglang").code == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ((), "--on: must name at least one node"),
            (("--on", "a9"), "unknown node 'a9'"),
            (("--on", "cpu"), "--on: must have at least 1 GPU, 'cpu' has none"),
            (("--on", "a1", "--on", "a1"), "--on: is named before"),
            (("--on", "a1", "--gpus", "4"), "--gpus: must not go with --topology"),
            (("--on", "a1", "--memory-share", "0.5"), "--memory-share: needs --model or --expert-bytes"),
            (("--on", "a1", "--memory-share", "2", "--expert-bytes", "1"), "--memory-share: must be above 0"),
            (("--on", "a1", "--speed-by", "luck"), "--speed-by: must be one that is known of H100-SXM"),
        ],
    )
    def test_invalid_topology_options_are_reported(
        self, cli: Cli, site: Path, out: Path, options: tuple[str, ...], message: str
    ) -> None:
        done = cli("place", EXAMPLE, "--slots", "40", "--topology", site, *options, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(line.startswith(message) for line in done.refused), done.stderr


class TestMemory:
    def test_smaller_gpus_hold_fewer_copies(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        memory = written(tmp_path / "memory.json", [40, 40, 40, 40, 26, 26, 26, 26.5])
        limits = ("--gpu-memory", memory, "--expert-bytes", str(10**9))
        assert cli("place", EXAMPLE, *SHAPE, *limits, "-o", out).code == 0
        assert read(out).layout.slots_of_gpu.tolist() == [6, 6, 6, 6, 4, 4, 4, 4]

    @pytest.mark.parametrize(
        ("memory", "message"),
        [
            ([40] * 7, "gpu_memory: must be one number per GPU (8), got 7"),
            ([40] * 7 + [5], "gpu_memory[7]: must hold one expert of each layer, 6 GB"),
            ([40] * 7 + [-5], "gpu_memory[7]: must be above 0"),
            ([40] * 7 + ["much"], "gpu_memory[7]: must be a number of GB"),
            ([24] * 8, "--slots: must be from 8 (one per GPU) to what memory holds (32), got 40"),
        ],
    )
    def test_invalid_memory_is_reported(self, cli: Cli, tmp_path: Path, out: Path, memory: Any, message: str) -> None:
        limits = ("--gpu-memory", written(tmp_path / "memory.json", memory), "--expert-bytes", str(10**9))
        done = cli("place", EXAMPLE, *SHAPE, *limits, "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert any(message in line for line in done.refused), done.stderr


class TestTraffic:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        """Tokens with four experts of one half each: halves on different nodes save traffic."""
        rng = np.random.default_rng(2)
        halves = rng.integers(0, 2, size=(200, ROWS))
        chosen = np.stack([rng.permutation(16)[:4] for _ in range(200 * ROWS)]).reshape(200, ROWS, 4)
        path = tmp_path / "trace.npz"
        np.savez(path, trace=(chosen * 2 + halves[..., np.newaxis]).astype(np.int16))
        return path

    def test_a_trace_lowers_remote_nodes_within_the_imbalance_ceiling(
        self, cli: Cli, trace: Path, tmp_path: Path
    ) -> None:
        counts = np.zeros((ROWS, EXPERTS))
        for token in np.load(trace)["trace"]:
            for layer, chosen in enumerate(token):
                counts[layer, chosen] += 1
        path = tmp_path / "loads.npy"
        np.save(path, counts + 1)
        command = ("place", path, *SHAPE, "--trace", trace, "--format", "json")
        found = cli(*command, "--max-imbalance", "1.1").json
        assert found["imbalance"]["mean"] <= 1.1
        assert found["remote_nodes"]["source"] == "trace"
        assert found["remote_nodes_per_token"] < found["predictions"]["before"]["remote_nodes_per_token"] * 0.8

    def test_groups_replace_a_trace_and_are_labelled_as_modelled(self, cli: Cli) -> None:
        arguments = ("--groups", "4", "--max-imbalance", "1.1")
        done = cli("place", EXAMPLE, *SHAPE, *arguments, "--format", "json")
        assert done.json["remote_nodes"]["source"] == "modelled"
        assert "modelled tokens" in cli("place", EXAMPLE, *SHAPE, *arguments).stdout

    def test_modelled_tokens_do_not_change_the_balance_without_a_ceiling(self, cli: Cli) -> None:
        alone, plain = (
            json.loads(cli("place", EXAMPLE, *SHAPE, *more, "--format", "json").stdout)
            for more in (("--groups", "4"), ())
        )
        assert alone["imbalance"] == plain["imbalance"]
        assert alone["remote_nodes_per_token"] is None


class TestExport:
    @pytest.mark.parametrize("engine", Engine)
    def test_a_file_is_exported_for_every_engine(self, cli: Cli, out: Path, tmp_path: Path, engine: Engine) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        done = cli("place", "export", out, "--engine", engine)
        assert (done.code, done.stderr) == (0, "")
        target = tmp_path / "for-the-engine"
        assert cli("place", "export", out, "--engine", engine, "-o", target).stdout == ""
        assert target.read_text() == done.stdout

    def test_the_sglang_file_has_only_the_map(self, cli: Cli, out: Path) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        export_placement = cli("place", "export", out, "--engine", "sglang").json
        assert export_placement == {"physical_to_logical_map": [list(row) for row in read(out).physical_to_logical_map]}

    def test_an_invalid_placement_document_is_refused(self, cli: Cli, tmp_path: Path) -> None:
        broken = written(tmp_path / "broken.json", {"slots": 4, "gpus": 2, "nodes": 1})
        done = cli("place", "export", broken, "--engine", "vllm")
        assert done.code == 2
        assert any(line.startswith(f"{broken}: physical_to_logical_map: is required") for line in done.refused)

    def test_a_map_without_every_expert_is_refused(self, cli: Cli, out: Path) -> None:
        cli("place", EXAMPLE, *SHAPE, "-o", out)
        document = json.loads(out.read_text())
        document["physical_to_logical_map"][2] = [0] * 40
        written(out, document)
        done = cli("place", "export", out, "--engine", "vllm")
        assert done.code == 2
        assert any("physical_to_logical_map[2]: must hold every expert" in line for line in done.refused)


class TestPlot:
    def test_a_heat_map_is_written(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "heat.png"
        done = cli("place", EXAMPLE, *SHAPE, "--plot", path)
        assert (done.code, done.stderr) == (0, "")
        assert path.read_bytes().startswith(PNG)

    def test_an_unknown_plot_format_is_refused_first(self, cli: Cli, tmp_path: Path, out: Path) -> None:
        done = cli("place", EXAMPLE, *SHAPE, "--plot", tmp_path / "heat.gif", "-o", out)
        assert (done.code, out.exists()) == (2, False)
        assert "must end with one of .png, .svg, .pdf" in done.refused[0]


def test_place_without_arguments_lists_its_commands(cli: Cli) -> None:
    done = cli("place")
    assert (done.code, done.stdout) == (2, "")
    assert all(f"  {name} " in done.stderr for name in ("make", "check", "export"))


def test_the_help_of_place_make_lists_its_options(shell: Shell) -> None:
    done = shell("place", "make", "--help")
    assert done.code == 0
    assert "--current FILE" in done.stdout
