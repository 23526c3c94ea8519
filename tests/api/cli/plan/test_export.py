"""`fleetwright plan export`: files of a plan in a file or on a service, notes on stderr, and refusals."""

from pathlib import Path

import pytest
import yaml

from planner.export import WRITERS, Dialect
from tests.api.cli.samples import OFFER
from tests.testbed.cli import Cli

EXAMPLE = Path(__file__).parents[4] / "examples" / "chat.yaml"  # has given options
REQUEST = """\
workloads:
  - name: chat
    model: Llama-3.1-8B
    rate_rps: 30
    buckets: {input_tokens: [500], output_tokens: [250], share: [[1.0]]}
    slo: {tpot_ms: {mean: 100}, ttft_ms: {mean: 2000}}
"""
FLAG = "vllm serve meta-llama/Llama-3.1-8B"


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.yaml"
    path.write_text(REQUEST + OFFER)
    return path


@pytest.fixture
def plan_file(cli: Cli, request_file: Path) -> Path:
    path = request_file.with_name("plan.json")
    path.write_text(cli("plan", request_file, "--format", "json").stdout)
    return path


@pytest.mark.parametrize("dialect", Dialect)
def test_a_folder_gets_the_files_and_stderr_their_names_and_limits(
    dialect: Dialect, cli: Cli, plan_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "files"
    done = cli("plan", "export", plan_file, "--to", dialect, "--output-dir", folder)
    assert (done.code, done.stdout) == (0, "")
    names = sorted(path.name for path in folder.iterdir())
    engine = dialect in {Dialect.VLLM, Dialect.SGLANG}
    assert names == (["chat-h100-sxm-tp1.sh", "chat-routing.json"] if engine else ["chat.yaml"])
    assert done.stderr.splitlines() == [
        *(f"wrote {folder / name}" for name in names),
        *(f"not expressed: {line}" for line in WRITERS[dialect].not_expressed),
    ]


def test_manifests_on_stdout_are_yaml_with_the_chosen_names(cli: Cli, plan_file: Path) -> None:
    options = ("--namespace", "llm", "--image", "registry.example/vllm:1", "--gpu-value", "H100-SXM=h100")
    done = cli("plan", "export", plan_file, "--to", "lws", *options, "--weights", "chat=my/weights")
    found = list(yaml.safe_load_all(done.stdout))
    assert {each["metadata"]["namespace"] for each in found} == {"llm"}
    pod = found[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/vllm:1"
    assert pod["containers"][0]["command"] == ["vllm", "serve", "my/weights"]
    assert "operator: In\n                  values:\n                  - h100\n" in done.stdout


def test_the_request_of_a_plan_in_a_file_may_be_named(cli: Cli, plan_file: Path, request_file: Path) -> None:
    without = cli("plan", "export", plan_file, "--to", "lws").stdout
    named = cli("plan", "export", plan_file, "--to", "lws", "--request", request_file).stdout
    assert "request-digest" not in without
    assert "fleetwright.io/request-digest: sha256:" in named


def test_a_plan_on_stdin(cli: Cli, plan_file: Path) -> None:
    done = cli("plan", "export", "-", "--to", "vllm", stdin=plan_file.read_bytes())
    assert done.code == 0
    assert f"exec {FLAG} \\\n" in done.stdout


def test_a_stored_plan_by_its_id_and_its_record_in_a_file(remote: Cli, request_file: Path, tmp_path: Path) -> None:
    record = remote("plan", request_file, "--format", "json")
    plan_id = record.json["id"]
    stored = remote("plan", "export", plan_id, "--to", "llm-d")
    assert f"fleetwright.io/plan: {plan_id}\n" in stored.stdout
    assert "fleetwright.io/request-digest: sha256:" in stored.stdout
    file = tmp_path / "record.json"
    file.write_text(record.stdout)
    assert remote("plan", "export", file, "--to", "llm-d").stdout == stored.stdout


def test_the_text_output_of_a_plan_has_the_flags_of_vllm(cli: Cli, request_file: Path) -> None:
    shown = cli("plan", request_file).stdout
    assert f"  acme/h100/tp1: {FLAG} --tensor-parallel-size 1 --dtype bfloat16 --max-model-len 750 " in shown
    assert "vllm serve" not in cli("plan", EXAMPLE).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "kserve", "--engine", "sglang"), "engine: is sglang, expected vllm: KServe's templates start vLLM"),
        (("--to", "vllm", "--engine", "sglang"), "--engine: is sglang, expected vllm or nothing with --to vllm"),
        (
            ("--to", "vllm", "--engine-version", "0.9.2"),
            "--engine-version: flags of vllm 0.9.2 are not known, expected",
        ),
        (("--to", "lws", "--namespace", "A b"), "--namespace: string should match pattern"),
        (("--to", "lws", "--gpu-value", "H100"), "--gpu-value: expected NAME=VALUE, got 'H100'"),
        (("--to", "lws", "--gpu-value", "H100=a b"), "--gpu-value: H100: string should match pattern"),
        (("--to", "lws", "--weights", "code=x"), "weights.code: is no workload of the plan; it has: chat"),
        (("--to", "lws", "--image", "intel=x"), "--image: intel.[key]: input should be"),
        (("--to", "lws", "--request", "nowhere.yaml"), "nowhere.yaml: No such file or directory"),
    ],
)
def test_a_wrong_option_is_reported(options: tuple[str, ...], message: str, cli: Cli, plan_file: Path) -> None:
    done = cli("plan", "export", plan_file, *options)
    assert done.code == 2
    assert message in done.refused[0]


def test_the_flags_of_the_known_version_are_written(cli: Cli, plan_file: Path) -> None:
    assert cli("plan", "export", plan_file, "--to", "vllm", "--engine-version", "v0.24.0").code == 0


def test_a_name_that_is_no_file_and_no_id_is_reported(cli: Cli) -> None:
    assert cli("plan", "export", "nowhere", "--to", "vllm").refused == ["nowhere: No such file or directory"]


def test_a_plan_of_given_options_is_refused_with_the_repair(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(cli("plan", EXAMPLE, "--format", "json").stdout)
    done = cli("plan", "export", file, "--to", "vllm")
    assert done.code == 2
    assert "plan with a model and offers" in done.refused[0]


def test_a_folder_that_is_a_file_is_reported(cli: Cli, plan_file: Path) -> None:
    done = cli("plan", "export", plan_file, "--to", "vllm", "--output-dir", plan_file)
    assert done.code == 2
    assert done.refused == [f"--output-dir: {plan_file}: File exists"]
