"""`fleetwright profiles import|show`."""

import json
from pathlib import Path

import pytest

from fleet.documents import parse_document, read_model
from planner.profiles import Profiles
from tests.planner.profiles.samples import GUIDELLM, OWN_CSV, SGLANG, SILICON, VLLM, text
from tests.testbed.cli import Cli


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result of each tool, in the directory that the command runs in."""
    contents = {
        "vllm.json": text(VLLM),
        "sglang.jsonl": text(SGLANG, SGLANG | {"request_rate": 16.0}),
        "guidellm.json": json.dumps(GUIDELLM),
        "silicon.csv": SILICON,
        "own.csv": OWN_CSV,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestImport:
    def test_all_formats_become_one_document(self, cli: Cli, files: Path) -> None:
        done = cli("profiles", "import", *sorted(path.name for path in files.iterdir()), "--gpu", "H100")
        assert done.code == 0
        assert done.stderr.splitlines() == [
            "guidellm.json: guidellm, 4 runs",
            "own.csv: csv, 2 runs",
            "sglang.jsonl: sglang, 2 runs",
            "silicon.csv: silicon, 2 runs; 1 row of split prefill and decode left out",
            "vllm.json: vllm, 1 run",
        ]
        profiles = read_model(parse_document(done.stdout, name="out"), Profiles)
        assert len(profiles.points) == 11
        assert {point.gpu for point in profiles.points} == {"H100-SXM", "B200", "L4"}

    def test_imported_profiles_can_be_extended(self, cli: Cli, files: Path) -> None:
        (files / "profiles.yaml").write_text(cli("profiles", "import", "own.csv").stdout)
        again = cli("profiles", "import", "profiles.yaml", "own.csv", "vllm.json", "--format", "json")
        assert [point["gpu"] for point in again.json["points"]] == ["L4", "L4", "H100-SXM"]

    def test_csv_output_can_be_imported_again(self, cli: Cli, files: Path) -> None:
        table = cli("profiles", "import", "own.csv", "vllm.json", "--csv").stdout
        (files / "table.csv").write_text(table)
        assert cli("profiles", "import", "table.csv", "--csv").stdout == table

    def test_options_fill_fields_that_the_file_does_not_state(self, cli: Cli, files: Path) -> None:
        options = ("--gpu", "L4", "--tp", "2", "--engine", "vllm", "--date", "2026-11-01", "--source", "lab")
        first = cli("profiles", "import", "sglang.jsonl", *options, "-o", "json").json["points"][0]
        assert (first["gpu"], first["tensor_parallel"], first["engine"]) == ("L4", 4, "sglang")
        assert (first["date"], first["source"]) == ("2026-11-01", "lab")
        assert files.is_dir()

    def test_results_may_come_on_stdin(self, cli: Cli) -> None:
        done = cli("profiles", "import", "-", "-o", "json", stdin=text(VLLM).encode())
        assert done.json["points"][0]["source"] == "stdin"

    def test_errors_of_all_files_are_reported_at_once(self, cli: Cli, files: Path) -> None:
        (files / "vllm.json").write_text(text(VLLM | {"gpu": "H1000", "request_throughput": -1.0}))
        done = cli("profiles", "import", "vllm.json", "own.csv", "sglang.jsonl", "nowhere.json")
        assert done.code == 2
        assert done.stdout == ""
        refused = [line.removeprefix("fleetwright: ") for line in done.stderr.splitlines() if "fleetwright" in line]
        assert refused[0].startswith("vllm.json: line 1: gpu: unknown GPU 'H1000'; nearest: H100")
        assert refused[1] == "vllm.json: line 1: request_throughput: input should be greater than 0, got -1.0"
        assert refused[2].startswith("sglang.jsonl: line 1: gpu: is required: the file does not state it")
        assert refused[3].startswith("sglang.jsonl: line 2: gpu: is required")
        assert refused[4] == "nowhere.json: No such file or directory"

    def test_a_forced_format_is_used(self, cli: Cli, files: Path) -> None:
        done = cli("profiles", "import", "own.csv", "--from", "vllm")
        assert done.code == 2
        assert "own.csv: line 1: is not JSON: expecting value, column 1" in done.stderr
        assert files.is_dir()


class TestShow:
    def test_each_model_on_each_kind_of_replica_has_a_row(self, cli: Cli, files: Path) -> None:
        done = cli("profiles", "show", "own.csv", "silicon.csv", "vllm.json")
        assert [line.split("  ")[0] for line in done.stdout.splitlines()[1:]] == [
            "Llama-3.1-8B",
            "Llama-3.1-8B",
            "Qwen3-32B",
            "Qwen3-32B",
        ]
        assert done.stderr == ""
        assert files.is_dir()

    def test_configurations_are_shown_in_json(self, cli: Cli, files: Path) -> None:
        (covered,) = cli("profiles", "show", "own.csv", "-o", "json").json["configurations"]
        assert covered == {
            "model": "Llama-3.1-8B",
            "gpu": "L4",
            "tensor_parallel": 1,
            "gpus": 1,
            "precision": "fp8",
            "engine": "vllm 0.19",
            "runs": 2,
            "sizes": 1,
            "input_tokens": [500, 500],
            "output_tokens": [100, 100],
            "pressed_by": ["offered rate"],
            "last": "2026-11-03",
            "sources": ["lab"],
        }
        assert files.is_dir()
