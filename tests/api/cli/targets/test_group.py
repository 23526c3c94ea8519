"""`fleetwright targets table`: the weights of a stored plan, as a routing table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.router.table import RoutingTable
from fleet.gpus import builtin_gpus
from fleet.offers import builtin_prices
from tests.api.cli.samples import REQUEST, TARGET
from tests.testbed.cli import Cli

MAX_PARTS = 100  # of a target
REPLICA_SIZES = (("/x1", ""), ("/x2", "-2"), ("/x4", "-4"), ("/x8", "-8"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A request and a target."""
    (tmp_path / "request.yaml").write_text(REQUEST)
    deployments = {gpu.name: f"on-{gpu.name.lower()}" for gpu in builtin_gpus().gpus}  # whichever is cheapest today
    (tmp_path / "target.yaml").write_text(TARGET.replace("{H100: large}", json.dumps(deployments)))
    return tmp_path


@pytest.fixture
def target(remote: Cli, files: Path) -> Iterator[str]:
    """A registered target, deleted after the test."""
    assert remote("targets", "put", "chat", files / "target.yaml").code == 0
    yield "chat"
    remote("targets", "delete", "chat")


def test_the_plan_of_a_target_is_printed_as_a_routing_table(remote: Cli, target: str, files: Path) -> None:
    nothing = remote("targets", "table", target)
    assert (nothing.code, nothing.refused) == (2, [f"target {target} has no plan: give --plan"])
    plan_id = remote("plan", files / "request.yaml", "-o", "json").json["id"]
    remote("targets", "set", target, "--plan", plan_id)
    routing_table = RoutingTable.model_validate_json(remote("targets", "table", target).stdout)
    ((name, route),) = routing_table.routes.items()
    assert (routing_table.version, routing_table.by_cell) == (plan_id, {(0, 0): {name: 1.0}})
    into = files / "table.json"
    done = remote("targets", "table", target, "--max-in-flight", f"{name}=16", "--into", into)
    assert (done.code, done.stdout) == (0, "")
    (bounded,) = RoutingTable.model_validate_json(into.read_text()).routes.values()
    assert (bounded.replicas, bounded.max_in_flight) == (route.replicas, 16)
    both = RoutingTable.model_validate_json(remote("targets", "table", target, "--after", plan_id).stdout)
    assert (both.version, both.by_cell) == (f"{plan_id}+", routing_table.by_cell)


@pytest.mark.parametrize(
    ("bound", "refused"),
    [
        ("on-h100", "expected DEPLOYMENT=N, N at least 1"),
        ("on-h100=0", "expected DEPLOYMENT=N, N at least 1"),
        ("small=4", "no deployment of target"),
    ],
)
def test_invalid_bounds_of_a_routing_table_are_refused(
    remote: Cli, target: str, files: Path, bound: str, refused: str
) -> None:
    plan_id = remote("plan", files / "request.yaml", "-o", "json").json["id"]
    done = remote("targets", "table", target, "--plan", plan_id, "--max-in-flight", bound)
    assert done.code == 2
    assert done.refused[0].startswith(f"--max-in-flight {bound.partition('=')[0]}")
    assert refused in done.refused[0]


def test_a_target_with_replica_options_is_registered_shown_and_routed(remote: Cli, target: str, files: Path) -> None:
    offered = sorted({offer.gpu for offer in builtin_prices().offers})[: MAX_PARTS // len(REPLICA_SIZES)]
    parts = {f"{gpu}{way}": f"on-{gpu.lower()}{name}" for gpu in offered for way, name in REPLICA_SIZES}
    (files / "options.yaml").write_text(TARGET.replace("{H100: large}", json.dumps(parts)))
    assert remote("targets", "put", target, files / "options.yaml").code == 0
    assert remote("targets", "show", target).fields["application.deployments.L4/x2"] == "on-l4-2"
    plan = remote("plan", files / "request.yaml", "-o", "json").json
    (used,) = plan["plan"]["allocation"]
    table = RoutingTable.model_validate_json(remote("targets", "table", target, "--plan", plan["id"]).stdout)
    assert table.routes.keys() == {parts[f"{used['gpu']}/x{used['gpus_per_replica']}"]}


def test_an_invalid_replica_option_name_is_refused(remote: Cli, files: Path) -> None:
    (files / "slip.yaml").write_text(TARGET.replace("H100: large", "H100/x02: large"))
    done = remote("targets", "put", "slip", files / "slip.yaml")
    assert (done.code, "without leading zeros" in done.refused[0]) == (2, True)


def test_a_dry_run_shows_the_changes_and_stores_nothing(remote: Cli, files: Path) -> None:
    created = remote("targets", "put", "chat", files / "target.yaml", "--dry-run")
    assert "target chat would be created; nothing is stored" in created.stderr
    assert remote("targets", "show", "chat").code == 1
    remote("targets", "put", "chat", files / "target.yaml")
    try:
        same = remote("targets", "put", "chat", files / "target.yaml", "--dry-run")
        preview = remote("targets", "set", "chat", "--mode", "apply", "--dry-run", "-o", "json").json
        version = remote("targets", "show", "chat", "-o", "json").json["version"]
    finally:
        remote("targets", "delete", "chat")
    assert same.stdout == "nothing to change\n"
    assert [(each["path"], each["planned"]) for each in preview["changes"]] == [("mode", "apply")]
    assert preview["version"] == version + 1
