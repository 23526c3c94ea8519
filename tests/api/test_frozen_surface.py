"""The surface that other programs rely on.  A name here never changes or disappears; new ones may be added.

Version 0.2.0 promises compatibility from here on: a failure of this test is a defect of the change, not of the test.
"""

import enum
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from api.cli.app import app
from api.server.auth import TOKEN_FORM
from api.server.settings import Settings
from planner.sweep import Knob
from scripts.reference_docs import api_document
from tests.api.cli.test_faults_replay import HANG, written
from tests.testbed.cli import Cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

OPTIONS = {
    "plan": "--gpus --models --offers --profiles --url --token-file --format -o",
    "sweep": "--over --plot --workers --ray --gpus --models --offers --profiles --format -o",
    "place make": (
        "--slots --gpus --nodes --topology --on --groups --trace --dispatch --engine --max-imbalance --gpu-speeds "
        "--gpu-slots --gpu-memory --memory-share --expert-bytes --speed-by --gpu-types --current --max-moves "
        "--move-gb-per-s --node-gb-per-s --model --models --least-tokens --seed --output -o --plot --format"
    ),
    "place export": "--engine --output -o",
    "power simulate": (
        "--servers --budget-servers --policy --days --seed --trace --training-share --fault --fault-s --guard "
        "--no-guard --budget-w --peak-share --load --decode-sensitivity --together --server --gpu --model --curves "
        "--plot --format -o"
    ),
    "faults replay": "--bundle-out --workload --format -o",
    "faults simulate": "--ranks --hours --scenario --seed --format -o",
    "demo": "--address --seconds --time-scale --acts --format -o",
    "serve": "--host --port --controller --no-controller --anonymous-read --insecure-no-auth",
}
VALUES = {
    **{(command, "--format"): "table json" for command in OPTIONS if "--format" in OPTIONS[command]},
    ("place make", "--dispatch"): "equal nearest hash",
    ("place make", "--engine"): "sglang",
    ("place export", "--engine"): "sglang vllm trtllm ascend",
    ("power simulate", "--policy"): "none threshold-low threshold-all polca ladder",
    ("power simulate", "--fault"): "planner-killed stale-telemetry ignored-actuation",
}
SCENARIOS = (
    *("healthy", "mixed", "congestion", "leaf", "straggler", "imbalance", "public", "eight", "early", "hangs"),
    *("lost-agents", "skew", "blind", "ring-only", "experts", "mild", "no-probes", "weeks", "weeks-no-probes"),
)
SETTINGS = {
    *("DATABASE_URL", "HOST", "PORT", "BOOTSTRAP_TOKEN_FILE", "INSECURE_NO_AUTH", "ANONYMOUS_READ"),
    *("LOG_LEVEL", "LOG_FORMAT", "BODY_LIMIT_BYTES", "RATE_LIMIT_PER_S", "RATE_LIMIT_BURST", "IDEMPOTENCY_TTL_S"),
    *("SIMULATION_SERVER_DAYS", "FAULT_SIMULATION_RANK_HOURS", "PLAN_CONCURRENCY"),
}
OTHER_VARIABLES = {
    *("URL", "TOKEN", "TOKEN_FILE", "AGENT", "AGENT_CA", "AGENT_GPUS", "AGENT_TOKEN_FILE"),
    *("CASE", "COLLECTIVES", "NODE", "VLLM_PLACEMENT"),
}
# Of tests and benchmarks.
DEVELOPMENT_VARIABLES = {
    *("FAULTS_DATA", "PLACEMENT_DATA", "PLANNER_DATA", "POWER_DATA", "POSTGRES_BIN", "REQUIRE"),
    *("BENCH_DAYS", "BENCH_FULL", "BENCH_SEEDS", "HEALING_MINUTES", "HEALING_REPEATS", "LAB_KEEP", "LAB_PYTHON"),
}
KNOBS = {"rate", "slo", "price", "power"}
PACKAGES = ("fleet", "planner", "placement", "power", "faults", "deploy", "api", "fleetwright")


def commands(name: str, command: Any, context: Any) -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for inner in command.list_commands(context):
        _name, loaded, _rest = command.resolve_command(context, [inner])
        yield from commands(f"{name} {inner}".strip(), loaded, context)


def options_of(command: Any) -> dict[str, set[str]]:
    """Every option of a command with its values, where they are a closed set."""
    found = {}
    for parameter in command.params:
        kind = parameter.type_descriptor.annotation
        is_enum = isinstance(kind, type) and issubclass(kind, enum.Enum)
        values = {str(each.value) for each in kind} if is_enum else {str(each) for each in get_args(kind)}
        found.update(dict.fromkeys((*parameter.opts, *parameter.secondary_opts), values))
    return found


@pytest.fixture(scope="module")
def present() -> dict[str, Any]:
    root = get_command(app)
    return dict(commands("", root, root.make_context("fleetwright", ["--help"], resilient_parsing=True)))


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command in OPTIONS for option in OPTIONS[command].split()]
)
def test_an_option_keeps_its_name_and_values(command: str, option: str, present: dict[str, Any]) -> None:
    options = options_of(present[command])
    assert option in options
    assert options[option] >= set(VALUES.get((command, option), "").split())


def test_knobs_of_a_sweep_keep_their_names(cli: Cli) -> None:
    assert set(Knob) >= KNOBS
    assert "rate, slo, price or power" in " ".join(cli("sweep", "--help").stdout.split())


def test_scenarios_of_simulated_faults_keep_their_names(cli: Cli) -> None:
    found = " ".join(cli("faults", "simulate", "--help").stdout.split())
    assert all(re.search(rf"(?<![\w-]){name}(?![\w-])", found) for name in SCENARIOS)


class TestExitCodes:
    def test_0_is_success(self, cli: Cli) -> None:
        assert cli("plan", EXAMPLES / "chat.yaml").code == 0

    def test_1_is_a_negative_result(self, cli: Cli, tmp_path: Path) -> None:
        request = tmp_path / "request.yaml"
        request.write_text((EXAMPLES / "chat.yaml").read_text() + "policy: {budget_usd_per_h: 1}\n")
        assert cli("plan", request).code == 1

    def test_1_is_a_missed_ceiling_of_a_placement(self, cli: Cli, tmp_path: Path) -> None:
        where = ("--slots", "32", "--gpus", "8", "--nodes", "2", "--max-imbalance", "1.0")
        assert cli("place", EXAMPLES / "expert-loads.json", *where, "-o", tmp_path / "placement.json").code == 1

    def test_1_is_a_bundle_that_replays_to_other_diagnoses(self, cli: Cli, tmp_path: Path) -> None:
        bundle = tmp_path / "hang.bundle"
        assert cli("faults", "replay", written(HANG, tmp_path / "hang"), "--bundle-out", bundle).code == 0
        *lines, _checksum = bundle.read_text().replace('"comm-hang"', '"crash"').splitlines(keepends=True)
        checksum = hashlib.sha256("".join(lines).encode()).hexdigest()
        bundle.write_text("".join([*lines, json.dumps({"sha256": checksum}), "\n"]))
        assert cli("faults", "replay", bundle).code == 1

    def test_2_is_invalid_input(self, cli: Cli, tmp_path: Path) -> None:
        assert cli("plan", tmp_path / "missing.yaml").code == 2
        assert cli("plan", "--no-such-option").code == 2


@pytest.fixture
def unused_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that nothing may call: port 9 is closed."""
    monkeypatch.setenv("FLEETWRIGHT_URL", "http://127.0.0.1:9")


def test_only_plan_and_the_catalogues_take_their_service_from_the_environment(present: dict[str, Any]) -> None:
    """Every other command that can compute locally does so, unless `--url` is given."""
    urls = {
        command: parameter.envvar
        for command, found in present.items()
        for parameter in found.params
        if "--url" in parameter.opts and "instead of computing locally" in parameter.help
    }
    by_environment = {command for command, variable in urls.items() if variable is not None}
    catalogues = {f"{kind} {verb}" for kind in ("gpus", "models", "offers", "topology") for verb in ("list", "show")}
    assert by_environment == {"plan"} | catalogues
    assert urls.keys() - by_environment == {
        *("place make", "place check", "power plan", "power simulate", "power forecast", "faults simulate"),
        *("profiles import", "profiles fit", "sweep"),
    }


class TestJson:
    def test_plan_keeps_its_json_keys(self, cli: Cli) -> None:
        plan = cli("plan", EXAMPLES / "chat.yaml", "--format", "json").json
        assert plan.keys() >= {"status", "cost_usd_per_h", "allocation", "solve_s"}
        assert plan["status"] == "optimal"
        assert all(each.keys() >= {"option", "count"} for each in plan["allocation"])

    @pytest.mark.usefixtures("unused_service")
    def test_place_without_a_subcommand_keeps_its_json_keys(self, cli: Cli, tmp_path: Path) -> None:
        target = tmp_path / "placement.json"
        where = ("--slots", "40", "--gpus", "8", "--nodes", "2")
        assert cli("place", EXAMPLES / "expert-loads.json", *where, "-o", target).code == 0
        placement = json.loads(target.read_text())
        assert placement.keys() >= {"physical_to_logical_map", "imbalance", "bound", "moved_copies", "solve_s"}
        assert "mean" in placement["imbalance"]
        assert "per_layer" in placement["bound"]

    @pytest.mark.usefixtures("unused_service")
    def test_power_simulate_keeps_its_json_keys(self, cli: Cli) -> None:
        row = cli("power", "simulate", "--servers", "4", "--days", "0.02", "--format", "json").json
        assert row.keys() >= {"brakes", "peak_utilization", "seconds_over_budget", "slo", "run_s"}

    def test_faults_replay_keeps_its_json_keys(self, cli: Cli, tmp_path: Path) -> None:
        (found,) = cli("faults", "replay", written(HANG, tmp_path / "hang"), "--format", "json").json
        assert found.keys() >= {"class", "scope", "node", "peer", "isolate", "detected_s"}

    @pytest.mark.usefixtures("unused_service")
    def test_faults_simulate_keeps_its_json_keys(self, cli: Cli) -> None:
        score = cli("faults", "simulate", "--ranks", "128", "--hours", "0.02", "--format", "json").json
        assert score.keys() >= {"recall", "false_isolations", "compute_s_per_window"}


def test_the_api_keeps_its_paths() -> None:
    paths = api_document()["paths"]
    for method, path in (("get", "/livez"), ("get", "/readyz"), ("get", "/v1/gpus"), ("post", "/v1/plans")):
        assert method in paths[path]


def test_settings_keep_their_names() -> None:
    assert Settings.model_config["env_prefix"] == "FLEETWRIGHT_"
    assert {name.upper() for name in Settings.model_fields} >= SETTINGS
    assert variables_in(*PACKAGES) >= OTHER_VARIABLES


def test_variables_of_tests_and_benchmarks_keep_their_names() -> None:
    assert variables_in("tests", "bench") >= DEVELOPMENT_VARIABLES


def variables_in(*folders: str) -> set[str]:
    """The names behind `FLEETWRIGHT_` in the modules of some folders, without this one."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    return {name for path in paths for name in re.findall(r"\bFLEETWRIGHT_([A-Z_]+)\b", path.read_text())}


def test_a_token_keeps_its_form() -> None:
    assert TOKEN_FORM.pattern == r"fw_(?P<id>[a-z0-9]{12})_(?P<secret>[A-Za-z0-9_-]{43})"


@pytest.mark.parametrize("target", ["install", "run", "check", "test", "bench"])
def test_a_make_target_keeps_its_name(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", ["tests/cluster", "helm/fleetwright/ci", "helm/fleetwright/files/dashboards"])
def test_a_folder_keeps_its_place(folder: str) -> None:
    assert any((ROOT / folder).iterdir())


def test_the_program_is_installed_under_its_name() -> None:
    assert 'fleetwright = "api.cli:main"' in (ROOT / "pyproject.toml").read_text()
    command = [str(ROOT / ".venv" / "bin" / "fleetwright"), "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("fleetwright ")
