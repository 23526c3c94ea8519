"""Commands on the plans that a service stores."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.cli.samples import REQUEST
from tests.testbed.cli import Cli


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    file = tmp_path / "request.yaml"
    file.write_text(REQUEST)
    return file


def plan(remote: Cli, file: Path, *options: str) -> Any:
    return remote("plan", file, "--format", "json", *options).json


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
