"""`fleetwright power simulate`: output as a table, JSON and a picture."""

import gzip
import math
from pathlib import Path

import pytest

from tests.testbed.cli import Cli

SMALL = ("power", "simulate", "--servers", "14", "--budget-servers", "8", "--days", "0.05", "--seed", "3")
CONTRACT_KEYS = {"brakes", "peak_utilization", "seconds_over_budget", "slo", "energy_kwh", "run_s"}
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2026-11-21 12:{second // 60:02}:{second % 60:02}.000,{900 + 37 * second % 4000},{20 + second % 50}\n"
    for second in range(600)
)


class TestOutput:
    def test_json_has_the_contract_keys_with_consistent_values(self, cli: Cli) -> None:
        answer = cli(*SMALL, "--policy", "polca", "--format", "json").json
        assert answer.keys() >= CONTRACT_KEYS
        assert {name: figures.keys() >= {"p50", "p99"} for name, figures in answer["slo"].items()} == {
            "high": True,
            "low": True,
        }
        assert answer["brakes"] == len([event for event in answer["events"] if event["what"] == "brake"])
        assert (answer["seconds_over_budget"] > 0) == (answer["peak_utilization"] > 1)
        mean_w = answer["mean_utilization"] * answer["budget_w"]
        assert answer["energy_kwh"] == pytest.approx(mean_w * answer["duration_s"] / 3.6e6, rel=1e-6)
        assert answer["uncapped"]["energy_kwh"] >= 0.95 * answer["energy_kwh"]

    def test_the_budget_follows_from_the_budget_servers(self, cli: Cli) -> None:
        same = ("power", "simulate", "--servers", "8", "--budget-servers", "8", "--days", "0.05", "--seed", "3")
        answer = cli(*same, "--policy", "none", "--format", "json").json
        assert answer["peak_utilization"] == pytest.approx(0.79)
        assert answer["slo"]["high"]["p99"] == answer["slo"]["low"]["p99"] == 0.0
        assert answer["slo_held"]

    def test_a_budget_may_be_given_in_watts(self, cli: Cli) -> None:
        answer = cli(*SMALL, "--budget-w", "60000", "--format", "json").json
        assert answer["budget_w"] == 60_000.0
        assert answer["assumptions"]["peak_share"] is None

    def test_the_same_request_has_the_same_result(self, cli: Cli) -> None:
        first, second = (cli(*SMALL, "--format", "json").json for _ in range(2))
        for answer in (first, second):
            del answer["run_s"], answer["total_s"]
        assert first == second

    def test_the_text_output_lists_the_assumptions(self, cli: Cli) -> None:
        text = cli(*SMALL, "--policy", "threshold-low").stdout
        assert text.startswith("14 servers on ")
        assert "under threshold-low: " in text.splitlines()[0]
        assert "\n- the budget is that of 8 servers, whose uncapped peak is 79% of it: +75% servers\n" in text
        assert "a clock c slows tokens by 0.15 (1/c - 1)" in text
        assert "commands 40 s, the brake 5 s" in text

    def test_a_share_of_the_servers_may_run_training_jobs(self, cli: Cli) -> None:
        answer = cli(*SMALL, "--training-share", "0.5", "--format", "json").json
        assert (answer["training_share"], answer["requests"] > 0) == (0.5, True)
        assert "training jobs" in answer["assumptions"]["work"]

    @pytest.mark.parametrize("fault", ["planner-killed", "stale-telemetry", "ignored-actuation"])
    def test_a_fault_may_be_simulated(self, cli: Cli, fault: str) -> None:
        answer = cli(*SMALL, "--fault", fault, "--format", "json").json
        assert answer["fault"] == fault

    def test_a_higher_decode_sensitivity_never_lowers_the_slo_impact(self, cli: Cli) -> None:
        mild, hard = (
            cli(*SMALL, "--policy", "polca", "--decode-sensitivity", share, "--format", "json").json
            for share in ("0.05", "0.25")
        )
        assert mild["budget_w"] == hard["budget_w"]
        assert mild["slo"]["low"]["p50"] <= hard["slo"]["low"]["p50"]

    def test_a_plot_is_written(self, cli: Cli, tmp_path: Path) -> None:
        done = cli(*SMALL, "--plot", tmp_path / "power.png", "--fault", "stale-telemetry")
        assert done.code == 0, done.stderr
        assert (tmp_path / "power.png").read_bytes().startswith(b"\x89PNG")

    def test_slo_figures_are_finite_or_null(self, cli: Cli) -> None:
        answer = cli(*SMALL, "--budget-w", "30000", "--format", "json").json
        figures = [answer["slo"][name][quantile] for name in ("high", "low") for quantile in ("p50", "p99")]
        assert all(figure is None or math.isfinite(figure) for figure in figures)
        assert not answer["slo_held"]


class TestTraces:
    def test_a_trace_may_be_plain_or_gzipped(self, cli: Cli, tmp_path: Path) -> None:
        plain, packed = tmp_path / "code.csv", tmp_path / "code.csv.gz"
        plain.write_text(TRACE)
        packed.write_bytes(gzip.compress(TRACE.encode()))
        first, second = (cli(*SMALL, "--trace", path, "--format", "json").json for path in (plain, packed))
        assert first["assumptions"]["work"] == "code"
        assert first["requests"] == second["requests"] > 0
        assert first["assumptions"]["together"] == 32  # traces come from services that batch

    def test_several_traces_may_follow_one_option(self, cli: Cli, tmp_path: Path) -> None:
        paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
        for path in paths:
            path.write_text(TRACE)
        answer = cli(*SMALL, "--trace", *paths, "--format", "json").json
        assert answer["assumptions"]["work"] == "a, b"


WRONG = [
    (("--servers", "0"), "--servers: input should be greater than or equal to 1, got 0"),
    (("--servers", "3"), "--servers: must be at least 4, one for each kind of request, got 3"),
    (("--servers", "3000"), "--servers: input should be less than or equal to 2000, got 3000"),
    (("--servers", "many"), "invalid value for '--servers'"),
    (("--budget-servers", "0"), "--budget-servers: input should be greater than or equal to 4, got 0"),
    (("--days", "-1"), "--days: input should be greater than or equal to 0.01, got -1.0"),
    (("--days", "nan"), "--days: expected a finite number"),
    (("--days", "900"), "--days: input should be less than or equal to 60, got 900.0"),
    (("--seed", "-1"), "--seed: input should be greater than or equal to 0, got -1"),
    (("--policy", "polka"), "'polka' is not one of 'none', 'threshold-low', 'threshold-all', 'polca', 'ladder'"),
    (("--training-share", "1.5"), "--training-share: input should be less than or equal to 1, got 1.5"),
    (("--training-share", "-0.1"), "--training-share: input should be greater than or equal to 0, got -0.1"),
    (("--fault", "fire"), "'fire' is not one of 'planner-killed', 'stale-telemetry', 'ignored-actuation'"),
    (("--fault-s", "0"), "--fault-s: input should be greater than 0, got 0.0"),
    (("--budget-w", "-5"), "--budget-w: input should be greater than or equal to 1, got -5.0"),
    (("--decode-sensitivity", "2"), "--decode-sensitivity: input should be less than or equal to 1, got 2.0"),
    (("--together", "0"), "--together: input should be greater than or equal to 1, got 0"),
    (("--trace",), "option '--trace' requires an argument"),
    (("--trace", "none.csv"), "none.csv: No such file or directory"),
    (("none.csv",), "put --trace before them"),
    (("--server", "none.yaml"), "none.yaml: No such file or directory"),
    (("--plot", "power.txt"), "must end with one of .png, .svg, .pdf"),
    (("--plot", "nowhere/power.png"), "there is no folder nowhere"),
]


class TestWrongInput:
    @pytest.mark.parametrize(("options", "text"), WRONG)
    def test_an_invalid_option_is_reported_in_one_line(self, cli: Cli, options: tuple[str, ...], text: str) -> None:
        done = cli(*SMALL, *options)
        assert done.code == 2
        (line,) = done.refused
        assert text in line

    def test_an_invalid_trace_is_reported_with_line_and_column(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "code.csv"
        path.write_text("time,input_tokens,output_tokens\n0,5,5\n1,-2,5\n")
        done = cli(*SMALL, "--trace", path)
        assert done.code == 2
        assert f"{path.name}: line 3: input_tokens" in done.refused[0]

    def test_a_broken_gzip_file_is_reported(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "code.csv.gz"
        path.write_bytes(gzip.compress(TRACE.encode())[:-100])
        done = cli(*SMALL, "--trace", path)
        assert done.code == 2
        assert "is a broken gzip file" in done.refused[0]

    def test_an_invalid_server_is_reported_by_field(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "server.yaml"
        path.write_text("name: x\ngpus: 0\n")
        done = cli(*SMALL, "--server", path)
        assert done.code == 2
        assert any("gpus: input should be greater than or equal to 1" in line for line in done.refused)
