"""Commands on the plans that a service stores."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from api.cli.plan.watch import Ends
from api.client import Client
from api.schemas.jobs import Job, JobState, Lane
from planner import PlanRequest
from tests.api.cli.samples import OFFER, REQUEST
from tests.planner.requests import from_offers, given
from tests.testbed.cli import Cli
from tests.testbed.server import ADMIN_TOKEN

SLO = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
NOW = "2026-11-27T12:00:00Z"


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    file = tmp_path / "request.yaml"
    file.write_text(REQUEST)
    return file


def plan(remote: Cli, file: Path, *options: str) -> Any:
    return remote("plan", file, "--format", "json", *options).json


class TestPlans:
    def test_a_plan_is_created_listed_and_shown(self, remote: Cli, request_file: Path) -> None:
        record = remote("plan", request_file, "--format", "json").json
        assert record["plan"]["status"] == "optimal"
        assert remote("plans", "show", record["id"], "--format", "json").json == record
        assert remote("plans", "list", "-o", "json", "--most", "1").json[0]["id"] == record["id"]

        listed = remote("plans", "list").stdout.splitlines()
        assert listed[0].split() == ["plan", "at", "by", "status", "$/h", "name", "labels"]
        assert listed[1].split()[0] == record["id"]

        shown = remote("plans", "show", record["id"]).stdout
        assert shown.startswith(f"plan {record['id']}, ")
        assert "created by token:admin0000000\n\n" in shown

    def test_the_text_output_names_the_stored_plan(self, remote: Cli, request_file: Path) -> None:
        done = remote("plan", request_file)
        assert remote("plans", "list", "-o", "json").json[0]["id"] == done.stdout.split()[1].rstrip(",")

    def test_an_infeasible_request_exits_with_1(self, remote: Cli, request_file: Path) -> None:
        request_file.write_text(REQUEST + OFFER.replace("gpu: H100", "gpu: H100\n    available: 0"))
        done = remote("plan", request_file, "--format", "json")
        assert (done.code, done.stderr) == (1, "")
        assert json.loads(done.stdout)["plan"]["status"] == "infeasible"

    def test_a_missing_plan_is_reported(self, remote: Cli) -> None:
        done = remote("plans", "show", "01a1fd26-439a-7ac2-acaa-525066f743ab")
        assert done.code == 1
        assert done.refused[0].startswith("GET /v1/plans/01a1fd26-439a-7ac2-acaa-525066f743ab: 404 Not Found: ")


class TestNames:
    def test_a_plan_is_listed_by_its_name_and_its_labels(self, remote: Cli, request_file: Path) -> None:
        named = plan(remote, request_file, "--name", "chat week 48", "--label", "team=search", "--label", "tier=gold")
        plan(remote, request_file, "--name", "other", "--label", "team=ads")
        assert (named["name"], named["labels"]) == ("chat week 48", {"team": "search", "tier": "gold"})
        for options in (
            ("--name", "chat"),
            ("--label", "team=search"),
            ("--label", "team=search", "--label", "tier", "--status", "optimal", "--by", "token:admin0000000"),
        ):
            assert [each["id"] for each in remote("plans", "list", "-o", "json", *options).json] == [named["id"]]
        assert remote("plans", "list", "-o", "json", "--name", "chat", "--before", "2020-01-01").json == []
        assert "name chat week 48\nlabels team=search,tier=gold\n\n" in remote("plans", "show", named["id"]).stdout
        heading, row = remote("plans", "list", "--name", "chat").stdout.splitlines()
        assert heading.split() == ["plan", "at", "by", "status", "$/h", "name", "labels"]
        assert row.split()[-4:] == ["chat", "week", "48", "team=search,tier=gold"]

    @pytest.mark.parametrize(
        ("command", "options", "message"),
        [
            ("plan", ("--label", "team"), "--label: 'team': allowed: KEY=VALUE, separated by commas"),
            ("plan", ("--name", ""), "--name: "),
            ("plans", ("--label", "-"), "--label: '-': allowed as key"),
            ("plans", ("--status", "good"), "--status: 'good' is no status, allowed: optimal"),
            ("plans", ("--since", "now"), "--since: 'now' is no moment"),
        ],
    )
    def test_a_wrong_option_is_refused(
        self, remote: Cli, request_file: Path, command: str, options: tuple[str, str], message: str
    ) -> None:
        done = remote(*(("plan", request_file) if command == "plan" else ("plans", "list")), *options)
        assert done.code == 2
        assert done.refused[0].startswith(message)

    def test_a_local_plan_has_no_name(self, cli: Cli, request_file: Path) -> None:
        done = cli("plan", request_file, "--name", "a")
        assert (done.code, done.refused) == (2, ["--name, --label: need --url: only a service stores results"])


class TestCompare:
    def test_two_plans_are_compared_as_a_table_and_as_json(self, remote: Cli, tmp_path: Path) -> None:
        ids = []
        for rate_rps in (30, 90):
            file = tmp_path / f"{rate_rps}.json"
            file.write_text(json.dumps(given(rate_rps=rate_rps)))
            ids.append(plan(remote, file)["id"])
        found = remote("plans", "compare", *ids, "--format", "json").json
        text = remote("plans", "compare", *ids).stdout
        assert found["gpus"]["difference"] == found["gpus"]["after"] - found["gpus"]["before"] > 0
        gpus = next(line.split() for line in text.splitlines() if line.startswith("GPUs"))
        assert [float(value) for value in gpus[1:]] == [
            found["gpus"][name] for name in ("before", "after", "difference")
        ]
        assert "workloads[0].rate_rps" in text
        assert "the mix is the same" in remote("plans", "compare", ids[0], ids[0]).stdout

    def test_an_unknown_plan_is_reported(self, remote: Cli, request_file: Path) -> None:
        known = plan(remote, request_file)["id"]
        done = remote("plans", "compare", known, "01a1fd26-439a-7ac2-acaa-525066f743ab")
        assert (done.code, "404 Not Found" in done.refused[0]) == (1, True)


class TestExplainAndReplay:
    def test_a_plan_is_explained_at_a_level(self, remote: Cli, request_file: Path) -> None:
        plan_id = plan(remote, request_file, "--explain", "none")["id"]
        found = remote("plans", "explain", plan_id, "--format", "json").json
        text = remote("plans", "explain", plan_id).stdout
        assert text.splitlines() == [f"- {line}" for line in found["explanation"]["lines"]]
        short = remote("plans", "explain", plan_id, "--level", "short", "--format", "json").json
        assert len(short["explanation"]["lines"]) < len(found["explanation"]["lines"])
        refused = remote("plans", "explain", plan_id, "--level", "none")
        assert (refused.code, "level" in refused.refused[0]) == (2, True)

    def test_a_plan_is_replayed_and_the_exit_code_is_the_result(self, remote: Cli, tmp_path: Path) -> None:
        file = tmp_path / "request.json"
        file.write_text(json.dumps(from_offers(slo=SLO) | {"replay": {"hours": 0.02, "seed": 1}}))
        plan_id = plan(remote, file)["id"]
        options = ("--hours", "0.02", "--seed", "1")
        done = remote("plans", "replay", plan_id, *options)
        assert done.code == 0
        assert done.stdout.splitlines()[-1] == "0.02 h of requests, seed 1: every limit holds"
        assert remote("plans", "replay", plan_id, *options, "-o", "json").json["replay"]["verified"] is True
        assert remote("plans", "replay", plan_id, "--hours", "0").code == 2

    def test_a_plan_with_given_rates_is_not_replayed(self, remote: Cli, tmp_path: Path) -> None:
        file = tmp_path / "request.json"
        file.write_text(json.dumps(given()))
        done = remote("plans", "replay", plan(remote, file)["id"])
        assert done.code == 1
        assert "has given rates" in done.stdout


def job(number: int, state: JobState) -> Job:
    return Job(
        id=str(number),
        kind="plan",
        lane=Lane.WORK,
        state=state,
        project="default",
        created_at=NOW,
        created_by="token:a",
        deadline_s=1.0,
        attempts=1,
    )


class TestWatch:
    def test_each_end_is_new_once_and_the_oldest_comes_first(self) -> None:
        ends = Ends([job(1, JobState.SUCCEEDED), job(2, JobState.RUNNING)])
        assert list(ends.among([job(2, JobState.RUNNING), job(1, JobState.SUCCEEDED)])) == []
        later = [job(4, JobState.QUEUED), job(3, JobState.FAILED), job(2, JobState.SUCCEEDED)]
        assert [each.id for each in ends.among(later)] == ["2", "3"]
        assert list(ends.among(later)) == []

    def test_a_plan_is_followed_to_its_end_and_printed(self, remote: Cli, service: str) -> None:
        with Client(service, token=ADMIN_TOKEN) as client:
            submitted = client.submit_plan(PlanRequest.model_validate(given(rate_rps=33)))
            found = remote("plans", "watch", submitted.id, "--format", "json").json
            assert found == client.get_plan(submitted.id).model_dump(mode="json")

    def test_new_plans_are_printed_as_they_end(self, remote: Cli, planning: None) -> None:  # noqa: ARG002
        lines = remote("plans", "watch", "--most", "2").stdout.splitlines()
        assert len(lines) == 2
        assert all(" optimal " in line and line.endswith(" by token:admin0000000 watched") for line in lines)


@pytest.fixture
def planning(service: str) -> Iterator[None]:
    """Plans are made one after the other, until the end of the test."""
    end = Event()

    def make() -> None:
        with Client(service, token=ADMIN_TOKEN) as client:
            while not end.is_set():
                client.create_plan(PlanRequest.model_validate(given()), name="watched")

    thread = Thread(target=make)
    thread.start()
    yield
    end.set()
    thread.join()
