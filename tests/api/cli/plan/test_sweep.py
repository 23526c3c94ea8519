"""`fleetwright sweep`: a table and a plot of cost over varied parameters."""

from pathlib import Path

import pytest

from planner.sweep import Sweep
from tests.testbed.cli import Cli

EXAMPLE = Path(__file__).parents[4] / "examples" / "chat.yaml"
TRACED = """
workloads:
  - name: chat
    model: Llama-3.1-8B
    buckets: {trace_file: requests.csv}
    slo: {ttft_ms: {p99: 2000}, tpot_ms: {p99: 100}}
offers:
  - {id: h, provider: x, region: r, market: on-demand, gpu: H100, price_usd_per_h: 2.5, as_of: 2026-11-01, source: s}
"""
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_sweep_as_json(cli: Cli) -> None:
    done = cli("sweep", EXAMPLE, "--over", "rate=0.5,1,2", "--workers", "1", "--format", "json")
    found = Sweep.model_validate(done.json)
    costs = [one.cost_usd_per_h or 0.0 for one in found.points]
    assert costs[1] == pytest.approx(12.12)
    assert costs == sorted(costs)
    assert all(one.pareto for one in found.points)


def test_a_sweep_as_a_table(cli: Cli) -> None:
    done = cli("sweep", EXAMPLE, "--over", "rate=1", "--over", "price:H100=1,2", "--workers", "1")
    heading, first, second = done.stdout.splitlines()
    assert heading.split() == ["rate", "price:H100", "$/h", "kW", "GPUs", "status", "mix"]
    assert first.split()[:4] == ["1.000", "1.000", "*", "12.12"]
    assert float(second.split()[3]) > 12.12


def test_the_served_rate_has_a_column_when_it_is_the_objective(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "served.yaml"
    path.write_text(f"{EXAMPLE.read_text()}policy: {{goal: served, budget_usd_per_h: 8}}\n")
    command = ("sweep", path, "--over", "rate=1,2", "--workers", "1")
    heading, *lines = cli(*command).stdout.splitlines()
    assert heading.split() == ["rate", "$/h", "served", "rps", "kW", "GPUs", "status", "mix"]
    found = Sweep.model_validate(cli(*command, "--format", "json").json)
    assert [line.replace("*", "").split()[2] for line in lines] == [f"{one.goal_value:.2f}" for one in found.points]
    assert all(one.goal_value and 0 < one.goal_value < 60 for one in found.points)


def test_the_result_of_a_replay_has_a_column(cli: Cli, tmp_path: Path) -> None:
    rows = "".join(f"{second},300,100\n" for second in range(120))
    (tmp_path / "requests.csv").write_text(f"time,input_tokens,output_tokens\n{rows}")
    path = tmp_path / "traced.yaml"
    path.write_text(TRACED)
    heading, first, second = cli("sweep", path, "--over", "rate=1,3", "--workers", "1").stdout.splitlines()
    assert heading.split() == ["rate", "$/h", "kW", "GPUs", "status", "verified", "mix"]
    assert [line.split()[-4] for line in (first, second)] == ["yes", "yes"]


def test_two_worker_processes_give_the_result_of_one(cli: Cli) -> None:
    """Starts real worker processes."""
    command = ("sweep", EXAMPLE, "--over", "rate=0.5:2:4", "--format", "json")
    assert cli(*command, "--workers", "2").json == cli(*command, "--workers", "1").json


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_plot_is_written(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"sweep{suffix}"
    done = cli("sweep", EXAMPLE, "--over", "rate=1,2", "--workers", "1", "--plot", path)
    assert done.code == 0
    assert path.read_bytes().startswith(PNG if suffix == ".png" else b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--over", "speed=1"), "does not begin with one of rate, slo, price, power"),
        (("--over", "rate=x"), "are no factors"),
        (("--over", "rate=nan"), "are no factors"),
        (("--over", "rate=1,1"), "1 is given twice"),
        (("--over", "rate=1e9"), "rate=1e+09 leads out of the valid range"),
        (("--over", "power=1,2"), "the request has no power domain to scale"),
        (("--over", "rate=1", "--plot", "x.txt"), "x.txt must end with one of .png, .svg, .pdf"),
        ((), "missing option '--over'"),
    ],
)
def test_invalid_input_is_refused_in_one_line(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    done = cli("sweep", EXAMPLE, *arguments)
    assert done.code == 2
    (line,) = done.refused
    assert message in line
