"""Local `fleetwright plan`: the mix, the instances to hire and the explanation; reasons when no plan is feasible."""

import json
from pathlib import Path

import pytest

from planner import Plan
from tests.api.cli.samples import GPU, OFFER, REQUEST
from tests.testbed.cli import Cli

EXAMPLE = Path(__file__).parents[4] / "examples" / "chat.yaml"
INFEASIBLE = """\
workloads:
  - name: chat
    rate_rps: 30
    buckets: {input_tokens: [500], output_tokens: [250], share: [[1.0]]}
    options:
      - {name: L4, gpu: L4, price_usd_per_h: 0.75, max_rps: [[2.5]], available: 3}
"""
UNLISTED = """\
workloads:
  - name: chat
    rate_rps: 10
    buckets: {input_tokens: [500], output_tokens: [250], share: [[1.0]]}
    options:
      - {name: mine, gpu: XPU-9, price_usd_per_h: 1, max_rps: [[2.5]]}
"""


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.yaml"
    path.write_text(REQUEST)
    return path


def test_the_example_as_a_table(cli: Cli) -> None:
    done = cli("plan", EXAMPLE)
    assert (done.code, done.stderr) == (0, "")
    first, _empty, heading, *rows = done.stdout.splitlines()
    assert first.startswith("12.12 $/h, proven the least; 2,814 W; solved in ")
    assert " ".join(heading.split()) == "workload option GPU replicas GPUs each busy % W"
    assert [row.split()[:4] for row in rows[:3]] == [
        ["chat", "L4", "L4", "1"],
        ["chat", "A100", "A100-80GB-SXM", "1"],
        ["chat", "H100", "H100-SXM", "2"],
    ]
    assert "- only L4: cannot serve bucket 2000x1000 of chat" in rows


def test_the_example_as_json(cli: Cli) -> None:
    done = cli("plan", EXAMPLE, "--format", "json")
    assert done.stderr == ""
    plan = Plan.model_validate(done.json)
    assert plan.cost_usd_per_h == pytest.approx(12.12)
    assert {entry.option: entry.count for entry in plan.allocation} == {"L4": 1, "A100": 1, "H100": 2}


@pytest.mark.parametrize(("level", "sentences"), [("none", 0), ("short", 2)])
def test_the_explanation_can_be_shortened(cli: Cli, level: str, sentences: int) -> None:
    assert (
        sum(line.startswith("- ") for line in cli("plan", EXAMPLE, "--explain", level).stdout.splitlines()) == sentences
    )
    document = cli("plan", EXAMPLE, "--explain", level, "--format", "json").json
    assert (document["status"], document["alternatives"]) == ("optimal", [])
    assert document["solve_s"] > 0
    assert document["explain_s"] >= 0


class TestAGpuOutsideTheCatalogue:
    """An option with its own rates and price needs no data sheet."""

    def test_an_option_with_an_unlisted_gpu_is_planned(self, cli: Cli) -> None:
        done = cli("plan", "-", "-o", "json", stdin=UNLISTED.encode())
        assert (done.code, done.stderr) == (0, "")
        (entry,) = done.json["allocation"]
        assert (entry["gpu"], entry["count"], entry["power_w"]) == ("XPU-9", 4, None)
        assert (done.json["status"], done.json["cost_usd_per_h"], done.json["power_w"]) == ("optimal", 4.0, None)
        assert "power not known" in cli("plan", "-", stdin=UNLISTED.encode()).stdout

    def test_a_quota_may_count_an_unlisted_gpu(self, cli: Cli) -> None:
        quota = "quotas: [{name: few, gpus: 3, gpu: xpu-9}]\n"
        done = cli("plan", "-", stdin=f"{UNLISTED}{quota}".encode())
        assert (done.code, done.stderr) == (1, "")
        assert "the quota few (3 GPUs)" in done.stdout

    @pytest.mark.parametrize(
        ("rule", "need"),
        [
            ("power_domains: [{name: row-2, limit_w: 9000}]", "power domain row-2"),
            ("policy: {goal: energy}", "the objective energy"),
        ],
    )
    def test_a_power_rule_needs_the_data_sheet_of_an_unlisted_gpu(self, cli: Cli, rule: str, need: str) -> None:
        done = cli("plan", "-", stdin=f"{UNLISTED}{rule}\n".encode())
        assert done.code == 2
        assert "workloads[0].options[0].gpu: unknown GPU 'XPU-9'" in done.stderr
        assert f"{need} needs its data sheet" in done.stderr

    def test_a_power_domain_of_other_options_needs_no_data_sheet(self, cli: Cli) -> None:
        two = UNLISTED.replace(
            "    options:\n", "    options:\n      - {name: l4, gpu: L4, price_usd_per_h: 9, max_rps: [[2]]}\n"
        )
        rule = "power_domains: [{name: row-2, limit_w: 9000, members: [chat/l4]}]\n"
        assert cli("plan", "-", stdin=f"{two}{rule}".encode()).code == 0


def test_the_request_may_come_on_stdin(cli: Cli) -> None:
    assert cli("plan", "-", "-o", "json", stdin=EXAMPLE.read_bytes()).json["status"] == "optimal"


def test_instances_to_hire_are_listed_for_a_plan_from_offers(cli: Cli, request_file: Path, tmp_path: Path) -> None:
    (tmp_path / "offers.yaml").write_text(OFFER)
    done = cli("plan", request_file, "--offers", tmp_path / "offers.yaml")
    heading = next(line for line in done.stdout.splitlines() if line.startswith("hire"))
    assert " ".join(heading.split()) == "hire units GPUs each $/h each $/h"
    assert "acme/h100      1          1     4.000  4.000" in done.stdout


def test_an_infeasible_request_prints_reasons_and_exits_with_1(cli: Cli) -> None:
    done = cli("plan", "-", stdin=INFEASIBLE.encode())
    assert (done.code, done.stderr) == (1, "")
    assert done.stdout.startswith("no plan: infeasible\n\n- ")


def test_an_infeasible_request_gives_a_json_document(cli: Cli) -> None:
    done = cli("plan", "-", "-o", "json", stdin=INFEASIBLE.encode())
    assert done.code == 1
    plan = Plan.model_validate(json.loads(done.stdout))
    assert plan.status == "infeasible"
    assert plan.explanation


class TestCatalogues:
    def test_gpus_of_a_users_file_are_planned(self, cli: Cli, request_file: Path, tmp_path: Path) -> None:
        (tmp_path / "gpus.yaml").write_text(GPU)
        (tmp_path / "offers.yaml").write_text(OFFER.replace("H100", "X1"))
        files = ("--gpus", tmp_path / "gpus.yaml", "--offers", tmp_path / "offers.yaml")
        assert {entry["gpu"] for entry in cli("plan", request_file, *files, "-o", "json").json["allocation"]} == {"X1"}

    def test_an_unknown_gpu_of_the_offers_file_is_reported_in_that_file(
        self, cli: Cli, request_file: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "offers.yaml").write_text(OFFER.replace("H100", "X1"))
        done = cli("plan", request_file, "--offers", tmp_path / "offers.yaml")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(f"{tmp_path}/offers.yaml: line 6: offers[0].gpu: unknown GPU 'X1'")

    def test_an_unknown_gpu_of_the_request_is_reported_in_the_request(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "request.yaml").write_text(REQUEST + OFFER.replace("H100", "X1"))
        done = cli("plan", tmp_path / "request.yaml")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(f"{tmp_path}/request.yaml: line 12: offers[0].gpu: unknown GPU 'X1'")

    def test_offers_in_both_the_request_and_a_file_are_refused(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "request.yaml").write_text(REQUEST + OFFER)
        (tmp_path / "offers.yaml").write_text(OFFER)
        done = cli("plan", tmp_path / "request.yaml", "--offers", tmp_path / "offers.yaml")
        assert (done.code, done.refused) == (2, ["--offers: the request has its own offers: give one of them"])

    @pytest.mark.parametrize("option", ["--gpus", "--models", "--offers"])
    def test_local_catalogues_with_a_service_url_are_refused(self, cli: Cli, request_file: Path, option: str) -> None:
        done = cli("plan", request_file, option, "file.yaml", "--url", "http://127.0.0.1:9")
        assert done.code == 2
        (line,) = done.refused
        assert line.endswith("are local, --url (or FLEETWRIGHT_URL) uses a service: give one of them")
