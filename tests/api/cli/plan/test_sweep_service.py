"""`fleetwright sweep --url` and `sweeps`: sweeps that a service plans and stores."""

from pathlib import Path

from tests.testbed.cli import Cli

EXAMPLE = Path(__file__).parents[4] / "examples" / "chat.yaml"
OVER = ("--over", "rate=0.5,1", "--over", "price=1,2")


def test_a_sweep_is_created_listed_and_shown(remote: Cli, service: str) -> None:
    named = ("--name", "grid", "--label", "team=search")
    record = remote("sweep", EXAMPLE, *OVER, *named, "--url", service, "--format", "json").json
    local = remote("sweep", EXAMPLE, *OVER, "--workers", "1", "--format", "json").json
    assert record["sweep"] == local
    assert remote("sweeps", "show", record["id"], "--format", "json").json == record
    heading, listed = remote("sweeps", "list").stdout.splitlines()
    assert heading.split() == ["sweep", "at", "by", "over", "points", "failed", "name", "labels"]
    assert listed.split()[-6:] == ["rate,", "price", "4", "0", "grid", "team=search"]
    assert remote("sweeps", "list", "--label", "team=ads", "-o", "json").json == []
    assert remote("sweeps", "show", record["id"]).stdout.startswith(f"sweep {record['id']}, ")


def test_a_refused_sweep_has_the_reason_of_the_service(remote: Cli, service: str) -> None:
    done = remote("sweep", EXAMPLE, "--over", "rate=1,1", "--url", service)
    assert done.code == 2
    assert "axes[0]: rate: factors must differ, but 1 is given twice" in done.refused[0]


def test_the_reason_of_a_failed_point_is_printed(remote: Cli, service: str, tmp_path: Path) -> None:
    workload = "{name: a, rate_rps: 1, model: no-such, slo: {ttft_ms: {p99: 900}}, "
    sizes = "buckets: {input_tokens: [500], output_tokens: [250], share: [[1]]}}"
    (tmp_path / "request.yaml").write_text(f"workloads: [{workload}{sizes}]")
    done = remote("sweep", tmp_path / "request.yaml", "--over", "rate=2", "--url", service)
    assert done.code == 0
    assert "rate=2 failed: " in done.stdout
    assert "no-such" in done.stdout


def test_local_options_are_refused_with_a_service(remote: Cli, service: str) -> None:
    done = remote("sweep", EXAMPLE, "--over", "rate=1", "--workers", "2", "--url", service)
    assert done.code == 2
    assert "--workers and --ray are local" in done.refused[0]
