"""`gpus`, `models`, `offers`, `topology`: shipped catalogues and users' files, as tables and as JSON."""

import json
from pathlib import Path

import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.offers import builtin_prices
from tests.api.cli.samples import CONFIG, GPU, OFFER, TOPOLOGY
from tests.testbed.cli import Cli

SHIPPED = {
    "gpus": [gpu.name for gpu in builtin_gpus().gpus],
    "models": [model.name for model in builtin_models().models],
    "offers": [offer.id for offer in builtin_prices().offers],
    "topology": [],
}


def first_column(table: str) -> list[str]:
    """The names below the heading."""
    return [line.split()[0] for line in table.splitlines()[1:]]


@pytest.mark.parametrize("kind", SHIPPED)
class TestList:
    def test_entries_are_listed_as_a_table(self, kind: str, cli: Cli) -> None:
        done = cli(kind, "list")
        assert (done.code, done.stderr) == (0, "")
        assert first_column(done.stdout) == SHIPPED[kind]

    def test_json_output_can_be_read_back(self, kind: str, cli: Cli, tmp_path: Path) -> None:
        listed = cli(kind, "list", "--format", "json")
        assert listed.stderr == ""
        file = tmp_path / "listed.json"
        file.write_text(listed.stdout)
        assert cli(kind, "check", file).stdout.startswith(f"{file}: good, {len(SHIPPED[kind])} ")
        assert cli(kind, "list", "--file", file, "-o", "json").json == listed.json


class TestShow:
    @pytest.mark.parametrize(
        ("label", "name"),
        [
            ("NVIDIA-H100-80GB-HBM3", "H100-SXM"),  # NVIDIA's GPU feature discovery
            ("nvidia-h100-80gb", "H100-SXM"),  # GKE
            ("NVIDIA_H100", "H100-SXM"),
            ("NVIDIA_A100", "A100-40GB-SXM"),
            ("H100_NVLINK_80GB", "H100-SXM"),  # CoreWeave, as the next three
            ("A100_NVLINK_80GB", "A100-80GB-SXM"),
            ("A100_NVLINK", "A100-40GB-SXM"),
            ("A100_PCIE_80GB", "A100-80GB-PCIe"),
        ],
    )
    def test_a_gpu_is_found_by_the_labels_of_clusters(self, label: str, name: str, cli: Cli) -> None:
        assert cli("gpus", "show", label).fields["name"] == name

    def test_nested_figures_are_shown_with_dotted_names(self, cli: Cli) -> None:
        assert cli("gpus", "show", "H100").fields["dense_tflops.bf16"] == "989.5"

    def test_a_model_is_shown_with_its_derived_figures(self, cli: Cli) -> None:
        model = builtin_models().get("Mixtral-8x7B")
        lines = cli("models", "show", "Mixtral-8x7B").fields
        assert lines["parameters"] == f"{model.parameters:,}" == "46,702,792,704"
        assert lines["active_parameters"] == f"{model.active_parameters:,}" == "12,879,925,248"
        assert lines["kv_bytes_per_token_fp16"] == "131,072"
        assert lines["weight_bytes_bf16"] == "93,405,585,408"

    def test_json_has_derived_figures_in_their_own_object(self, cli: Cli) -> None:
        shown = cli("models", "show", "DeepSeek-V3", "--format", "json").json
        derived = shown.pop("derived")
        assert derived["kv_bytes_per_token_fp16"] == 61 * (512 + 64) * 2
        assert derived["active_parameters"] < shown["parameters"]
        assert "active_parameters" not in shown

    def test_an_offer_is_shown_with_its_price_per_gpu(self, cli: Cli) -> None:
        shown = cli("offers", "show", "aws/us-east-1/p5.48xlarge/on-demand", "-o", "json").json
        assert shown["derived"]["price_usd_per_gpu_h"] == shown["price_usd_per_h"] / 8

    def test_a_node_is_shown_with_its_power_path(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "hall.yaml").write_text(TOPOLOGY)
        shown = cli("topology", "show", "n-1", "--file", tmp_path / "hall.yaml", "-o", "json").json
        assert shown["derived"] == {"site": "north", "power_path": ["row-a", "rack-1"]}
        assert cli("topology", "list", "--file", tmp_path / "hall.yaml").stdout == (
            "node  site   power           leaves  GPU   GPUs\n"
            "n-1   north  row-a > rack-1  -       H100     8\n"
        )  # fmt: skip


class TestFiles:
    def test_files_are_merged_over_the_shipped_catalogue(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "ours.yaml").write_text(GPU)
        (tmp_path / "newer.yaml").write_text(GPU.replace("tdp_w: 400", "tdp_w: 450"))
        files = ("--file", tmp_path / "ours.yaml", "--file", tmp_path / "newer.yaml")
        assert first_column(cli("gpus", "list", *files).stdout) == [*SHIPPED["gpus"], "X1"]
        assert cli("gpus", "show", "x1", *files, "-o", "json").json["tdp_w"] == 450

    def test_a_file_of_offers_replaces_the_shipped_ones(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "offers.yaml").write_text(OFFER)
        assert first_column(cli("offers", "list", "-f", tmp_path / "offers.yaml").stdout) == ["acme/h100"]

    def test_two_files_of_offers_are_refused(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "offers.yaml").write_text(OFFER)
        done = cli("offers", "list", "-f", tmp_path / "offers.yaml", "-f", tmp_path / "offers.yaml")
        assert (done.code, done.refused) == (2, ["--file: give one; two files of offers are not laid over one another"])

    def test_an_offer_may_name_a_gpu_of_a_users_file(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "gpus.yaml").write_text(GPU)
        (tmp_path / "offers.yaml").write_text(OFFER.replace("H100", "X1"))
        assert cli("offers", "check", tmp_path / "offers.yaml").code == 2
        assert cli("offers", "check", tmp_path / "offers.yaml", "--gpus", tmp_path / "gpus.yaml").code == 0

    def test_a_file_with_a_service_url_is_refused(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "offers.yaml").write_text(OFFER)
        done = cli("offers", "list", "-f", tmp_path / "offers.yaml", "--url", "http://127.0.0.1:9")
        assert (done.code, done.refused) == (
            2,
            ["--file is local, --url (or FLEETWRIGHT_URL) uses a service: give one of them"],
        )


class TestFromConfig:
    def test_a_config_is_shown_as_figures(self, cli: Cli) -> None:
        lines = cli("models", "from-config", "-", "--name", "Ours", stdin=CONFIG.encode()).fields
        assert lines["name"] == "Ours"
        assert lines["attention"] == "mha"
        assert lines["kv_bytes_per_token_fp16"] == f"{32 * 2 * 4096 * 2:,}"

    def test_json_output_is_a_catalogue_for_plan(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        made = cli("models", "from-config", tmp_path / "config.json", "--name", "Ours", "--format", "json")
        assert [model["name"] for model in made.json["models"]] == ["Ours"]

        (tmp_path / "ours.json").write_text(made.stdout)
        assert cli("models", "check", tmp_path / "ours.json").code == 0
        request = {
            "workloads": [
                {
                    "name": "chat",
                    "model": "ours",
                    "rate_rps": 1,
                    "buckets": {"input_tokens": [500], "output_tokens": [100], "share": [[1.0]]},
                    "slo": {"tpot_ms": {"mean": 100}},
                }
            ]
        }
        (tmp_path / "request.json").write_text(json.dumps(request))
        planned = cli("plan", tmp_path / "request.json", "--models", tmp_path / "ours.json", "-o", "json")
        assert planned.json["status"] == "optimal"

    def test_a_config_gives_the_figures_of_the_shipped_model(self, cli: Cli) -> None:
        config = {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        }
        done = cli("models", "from-config", "-", "--name", "L", "-o", "json", stdin=json.dumps(config).encode())
        assert done.json["models"][0]["parameters"] == builtin_models().get("Llama-3.1-8B").parameters
