"""`fleetwright faults paths`: its output, the files it writes, and one line for each invalid input."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.testbed.cli import Cli

FABRIC = """
sites:
  - name: north
    network:
      - {name: "leaf-[0-1]", tier: leaf, uplinks: ["spine-[0-3]"], link_gb_per_s: 50}
      - {name: "spine-[0-3]", tier: spine}
    nodes:
      - {name: "a-[0-3]", nic_gb_per_s: 50, leaves: [leaf-0]}
      - {name: "b-[0-3]", nic_gb_per_s: 50, leaves: [leaf-1]}
"""
JOB = """
name: pretrain
rings:
  - {name: data, members: [a-0, b-0, a-1, b-1, a-2, b-2, a-3, b-3]}
"""
QUICK = ("--draws", "5")


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    return _written(tmp_path / "fabric.yaml", FABRIC)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return _written(tmp_path / "job.yaml", JOB)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_json_has_planned_and_hashed_utilisation_and_the_optimum(cli: Cli, fabric: Path, job: Path) -> None:
    answer = cli("faults", "paths", fabric, job, *QUICK, "-o", "json").json
    assert (answer["job"], answer["flows"], answer["connections"], answer["split_flows"]) == ("pretrain", 8, 8, 0)
    assert answer["planned"]["greatest"] == answer["fractional_optimum"] == 1.0
    assert answer["planned"]["slowest_ring"] == 1.0
    assert answer["hashed"]["draws"] == 5
    assert answer["hashed"]["mean"] > 1.0
    assert (answer["ports_by"], answer["without_port"]) == ("model", 0)


def test_the_text_output_warns_that_ports_follow_a_model_hash(cli: Cli, fabric: Path, job: Path) -> None:
    done = cli("faults", "paths", fabric, job, *QUICK)
    assert done.code == 0
    assert done.stdout.startswith("pretrain: 8 flows of 1 rings, 8 connections\n")
    assert "- maximum utilisation 1.000; no assignment is below 1.000 (proof: cut)\n" in done.stdout
    assert "- slowest ring: 100.0% of its demand planned, " in done.stdout
    assert "model hash, not this fabric's" in done.stderr


def test_the_shipped_example_reaches_the_proven_optimum(cli: Cli) -> None:
    examples = Path(__file__).parents[3] / "examples"
    answer = cli("faults", "paths", examples / "fabric.yaml", examples / "training-job.yaml", *QUICK, "-o", "json").json
    assert answer["planned"]["greatest"] == pytest.approx(answer["fractional_optimum"]) == pytest.approx(8 / 7)
    assert answer["planned"]["by_tier"]["port out"] == answer["planned"]["by_tier"]["port in"] == pytest.approx(1.0)
    assert answer["split_flows"] <= 4


def test_written_paths_can_be_read_back_as_probed_paths(cli: Cli, fabric: Path, job: Path, tmp_path: Path) -> None:
    out, plan, probed = tmp_path / "paths.csv", tmp_path / "probes.csv", tmp_path / "probed.csv"
    assert cli("faults", "paths", fabric, job, *QUICK, "--out", out, "--probe-plan", plan).code == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 8
    assert {row["by"] for row in rows} == {"model"}
    assert all(49152 <= int(row["udp_source_port"]) <= 65535 for row in rows)
    assert {row["paths"] for row in csv.DictReader(io.StringIO(plan.read_text()))} == {"4"}
    lines = [f"{row['source']},{row['target']},{60000 + place},{row['path']}" for place, row in enumerate(rows)]
    probed.write_text("\n".join(["from,to,port,path", *lines[1:]]))
    done = cli("faults", "paths", fabric, job, *QUICK, "--probed", probed, "--out", out, "--form", "json")
    assert "1 connections: no source port is known" in done.stderr
    assert [row["udp_source_port"] for row in json.loads(out.read_text())] == [None, *range(60001, 60008)]


def test_a_dead_link_moves_few_connections(cli: Cli, fabric: Path, job: Path) -> None:
    answer = cli("faults", "paths", fabric, job, *QUICK, "--dies", "leaf-0,spine-1,0", "-o", "json").json
    assert answer["planned"]["greatest"] == pytest.approx(answer["fractional_optimum"]) == pytest.approx(4 / 3)
    repair = answer["repair"]
    assert 0 < repair["moved"] + repair["opened"] <= 12


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("b-3]", "b-9]", "the topology has no node 'b-9'"),
        ("b-3]", "b-3:1]", "b-3:1: b-3 has 1 NICs in the topology"),
        ("name: pretrain", "name: pretrain\ndead: [{lower: leaf-0, upper: spine-9}]", "there is no switch 'spine-9'"),
        ("name: pretrain", "name: pretrain\nnic_share: 2", "nic_share"),
    ],
)
def test_an_invalid_job_is_reported_in_one_line(cli: Cli, fabric: Path, old: str, new: str, message: str) -> None:
    wrong = _written(fabric.with_name("wrong.yaml"), JOB.replace(old, new))
    _refused(cli("faults", "paths", fabric, wrong).refused, message)


def test_a_topology_without_switches_is_reported_in_one_line(cli: Cli, job: Path, tmp_path: Path) -> None:
    nodes = 'sites: [{name: north, nodes: [{name: "a-[0-3]"}, {name: "b-[0-3]"}]}]'
    done = cli("faults", "paths", _written(tmp_path / "bare.yaml", nodes), job)
    assert done.code == 2
    _refused(done.refused, "the topology has no switches")


@pytest.mark.parametrize(
    ("dies", "message"),
    [
        ("leaf-0", "expected LOWER,UPPER or LOWER,UPPER,CABLE, got 'leaf-0'"),
        ("leaf-0,spine-9", "there is no switch 'spine-9'"),
        ("leaf-0,leaf-1", "'leaf-0' has no uplink to 'leaf-1'"),
        ("leaf-0,spine-0,1", "must be 0 to 0, got 1"),
        ("leaf-0,spine-0,999", "must be 0 to 0, got 999"),
        ("leaf-0,spine-0,x", "got 'leaf-0,spine-0,x'"),
        ("leaf 0!,spine-0", "there is no switch 'leaf 0!'"),
    ],
)
def test_an_invalid_link_is_reported_in_one_line(cli: Cli, fabric: Path, job: Path, dies: str, message: str) -> None:
    done = cli("faults", "paths", fabric, job, "--dies", dies)
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith("--dies: ")
    assert message in line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a-0:0,b-0:0,80,p", "line 3: port must be 49152 to 65535, got '80'"),
        ("a-0:0,b-0:0", "line 3: expected from, to, port and path, got less"),
        ("a-0:0,b-0:0,50000," + "p" * 200_000, "line 3: field larger than field limit"),
        ("a-0:0,b-0:0," + "9" * 5_000 + ",p", "line 3: port must be"),
    ],
)
def test_an_invalid_line_of_a_probed_file_is_reported(
    cli: Cli, fabric: Path, job: Path, line: str, message: str
) -> None:
    probed = _written(fabric.with_name("probed.csv"), f"from,to,port,path\na-0:0,b-0:0,50000,p\n{line}\n")
    done = cli("faults", "paths", fabric, job, "--probed", probed)
    assert done.code == 2
    _refused(done.refused, message)


def _refused(lines: list[str], message: str) -> None:
    (line,) = lines
    assert message in line
    assert len(line) < 300
