"""`projects`, and `--project` of the commands on what projects own."""

from pathlib import Path

from tests.api.cli.samples import REQUEST
from tests.testbed.cli import Cli


def test_a_project_is_created_changed_shown_and_deleted(remote: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "project.yaml"
    spec.write_text("description: Team A\nquotas: {plans_per_day: 100}\n")
    assert remote("projects", "put", "team-a", spec, "-o", "json").json["version"] == 1
    spec.write_text("quotas: {plans_per_day: 200}\n")
    assert remote("projects", "put", "team-a", spec).fields["spec.quotas.plans_per_day"] == "200"
    shown = remote("projects", "show", "team-a", "-o", "json").json
    assert (shown["version"], shown["spec"]["quotas"]["plans_per_day"]) == (2, 200)
    names = [each["name"] for each in remote("projects", "list", "-o", "json").json]
    assert "team-a" in names
    assert remote("projects", "delete", "team-a").stdout == "project team-a is deleted\n"
    assert remote("projects", "show", "team-a").code == 1


def test_a_wrong_quota_names_its_field(remote: Cli, tmp_path: Path) -> None:
    (tmp_path / "project.yaml").write_text("quotas: {plans_per_day: -1}\n")
    done = remote("projects", "put", "team-a", tmp_path / "project.yaml")
    assert done.code == 2
    assert "quotas.plans_per_day" in done.refused[0]


def test_results_are_created_and_listed_in_the_chosen_project(remote: Cli, tmp_path: Path) -> None:
    (tmp_path / "project.yaml").write_text("{}\n")
    (tmp_path / "request.yaml").write_text(REQUEST)
    for name in ("one", "two"):
        assert remote("projects", "put", name, tmp_path / "project.yaml").code == 0
    plan_id = remote("plan", tmp_path / "request.yaml", "--project", "one", "-o", "json").json["id"]

    def listed(*options: str) -> list[str]:
        return [plan["id"] for plan in remote("plans", "list", *options, "-o", "json").json]

    assert plan_id in listed()
    assert plan_id in listed("--project", "one")
    assert plan_id not in listed("--project", "two")
    jobs = remote("jobs", "list", "--project", "one", "-o", "json").json
    assert [job["id"] for job in jobs] == [plan_id]
    assert remote("plans", "show", plan_id, "--project", "two").code == 1


def test_a_name_that_no_project_can_have_is_refused(remote: Cli) -> None:
    done = remote("plans", "list", "--project", "Team A")
    assert done.code == 2
    assert done.refused[0].startswith("project: must be a name")
