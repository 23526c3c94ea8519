"""Commands against a real service: documents, plans, targets, tokens, the audit."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.client import Client
from api.schemas.targets import Change, Phase, TargetStatus
from tests.api.cli.samples import OFFER, REQUEST, TARGET
from tests.testbed.cli import Cli
from tests.testbed.server import ADMIN_TOKEN

OBSERVED_AT = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with one file of each kind."""
    for name, text in {"offers": OFFER, "request": REQUEST, "target": TARGET}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.fixture
def target(remote: Cli, files: Path) -> Iterator[str]:
    """A registered target, deleted after the test."""
    assert remote("targets", "put", "chat", files / "target.yaml").code == 0
    yield "chat"
    remote("targets", "delete", "chat")


class TestDocuments:
    def test_a_new_service_has_the_shipped_catalogue(
        self, remote: Cli, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = remote("gpus", "pull", "--format", "json").json
        from_service = remote("gpus", "list", "--format", "json").json
        monkeypatch.delenv("FLEETWRIGHT_URL")
        assert kept == from_service == cli("gpus", "list", "--format", "json").json

    def test_a_pushed_document_is_pulled_and_an_older_version_restored(self, remote: Cli, files: Path) -> None:
        before = remote("offers", "pull")
        pushed = remote("offers", "push", files / "offers.yaml", "--format", "json").json
        now = remote("offers", "pull")
        assert now.stderr == f"version {pushed['etag']}\n"
        (files / "pulled.yaml").write_text(now.stdout)
        assert remote("offers", "check", files / "pulled.yaml").stdout.endswith(": good, 1 offer\n")
        assert remote("offers", "show", "acme/h100").code == 0

        (newest, *_older) = remote("offers", "versions", "--format", "json").json
        assert newest["etag"] == pushed["etag"]
        assert newest["created_by"] == "token:admin0000000"

        old = remote("offers", "pull", "--version", str(newest["version"] - 1))
        assert old.stdout == before.stdout
        assert remote("offers", "push", "-", stdin=old.stdout.encode()).stdout.startswith("offers: version ")
        assert remote("offers", "pull").stdout == before.stdout

    def test_a_stale_etag_is_refused_and_changes_nothing(self, remote: Cli, files: Path) -> None:
        before = remote("offers", "pull").stdout
        done = remote("offers", "push", files / "offers.yaml", "--etag", '"1-0000000000000000"')
        assert done.code == 1
        (line,) = done.refused
        assert line.startswith("PUT /v1/offers: 412 Precondition Failed: ")
        assert remote("offers", "pull").stdout == before

    def test_an_invalid_file_is_refused_locally(self, remote: Cli, files: Path) -> None:
        (files / "offers.yaml").write_text(OFFER.replace("price_usd_per_h: 4", "price_usd_per_h: -4"))
        done = remote("offers", "push", files / "offers.yaml")
        assert done.code == 2
        (line,) = done.refused
        assert ": line 7: offers[0].price_usd_per_h: " in line

    def test_input_that_only_the_service_can_check_is_refused_as_invalid(self, remote: Cli, files: Path) -> None:
        (files / "offers.yaml").write_text(OFFER.replace("H100", "H1000"))
        done = remote("offers", "push", files / "offers.yaml")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith("offers[0].gpu: unknown GPU 'H1000'; nearest: H100, ")

    def test_a_missing_version_is_reported(self, remote: Cli) -> None:
        done = remote("gpus", "pull", "--version", "99")
        assert done.code == 1
        (line,) = done.refused
        assert line.startswith("GET /v1/gpus/versions/99: 404 Not Found: ")

    def test_versions_are_listed_as_a_table(self, remote: Cli) -> None:
        assert remote("models", "versions").stdout == "version  at  by  etag\n"


class TestPlacements:
    def test_a_placement_is_created_listed_shown_and_saved(
        self, remote: Cli, cli: Cli, service: str, tmp_path: Path
    ) -> None:
        loads = tmp_path / "loads.json"
        loads.write_text("[[9, 5, 4, 3], [1, 2, 3, 9]]")
        where = ("--slots", "6", "--gpus", "2", "--nodes", "1")
        record = remote("place", loads, *where, "--url", service, "--format", "json").json
        assert remote("placements", "show", record["id"], "--format", "json").json == record
        assert remote("placements", "list", "-o", "json", "--most", "1").json[0]["id"] == record["id"]
        listed = remote("placements", "list").stdout.splitlines()
        assert listed[0].split() == [
            "placement",
            "at",
            "by",
            "model",
            "slots",
            "GPUs",
            "imbalance",
            "bound",
            "name",
            "labels",
        ]
        assert listed[1].split()[0] == record["id"]

        saved = tmp_path / "placement.json"
        shown = remote("placements", "show", record["id"], "--save", saved)
        assert shown.stdout.startswith(f"placement {record['id']}, ")
        export_placement = cli("place", "export", saved, "--engine", "sglang").json
        assert export_placement["physical_to_logical_map"] == record["placement"]["physical_to_logical_map"]

    def test_the_service_gives_the_placement_of_the_local_command(
        self, remote: Cli, service: str, tmp_path: Path
    ) -> None:
        windows = [tmp_path / "first.json", tmp_path / "second.json"]
        for path in windows:
            path.write_text("[[9, 5, 4, 3, 7, 1, 2, 6], [1, 2, 3, 9, 4, 8, 6, 2]]")
        speeds, slots = tmp_path / "speeds.json", tmp_path / "slots.json"
        speeds.write_text("[1, 1, 0.5, 1]")
        slots.write_text("[3, 3, 2, 4]")
        where = ("--slots", "12", "--gpus", "4", "--nodes", "2", "--gpu-speeds", speeds, "--gpu-slots", slots)
        place_command: tuple[str | Path, ...] = ("place", *windows, *where, "--max-imbalance", "1.5", "--seed", "3")
        at_service = tmp_path / "service.json"
        assert remote(*place_command, "--url", service, "-o", at_service).stdout.startswith("placement ")
        local = tmp_path / "local.json"
        assert remote(*place_command, "-o", local).code == 0
        maps = [json.loads(path.read_text())["physical_to_logical_map"] for path in (at_service, local)]
        assert maps[0] == maps[1]

    def test_an_invalid_number_of_slots_is_refused(self, remote: Cli, service: str, tmp_path: Path) -> None:
        loads = tmp_path / "loads.json"
        loads.write_text("[[9, 5, 4, 3]]")
        done = remote("place", loads, "--slots", "5", "--gpus", "2", "--nodes", "1", "--url", service)
        assert done.code == 2
        assert "slots: must be a multiple of the number of GPUs (2), got 5" in done.refused[0]


class TestTargets:
    def test_a_registered_target_has_no_report_yet(self, remote: Cli, target: str) -> None:
        table = remote("targets", "list").stdout.splitlines()
        assert [line.split() for line in table] == [
            ["target", "mode", "plan", "phase", "planned", "running", "reported", "message"],
            [target, "observe", "-", "no", "report", "yet", "-", "-", "-", "-"],
        ]
        (listed,) = remote("targets", "list", "-o", "json").json["targets"]
        assert listed["status"] is None
        assert listed == remote("targets", "show", target, "-o", "json").json

    def test_a_target_is_set_to_a_plan(self, remote: Cli, target: str, files: Path) -> None:
        plan_id = remote("plan", files / "request.yaml", "-o", "json").json["id"]
        changed = remote("targets", "set", target, "--plan", plan_id, "--mode", "recommend", "-o", "json").json
        assert (changed["spec"]["plan_id"], changed["spec"]["mode"]) == (plan_id, "recommend")
        assert remote("targets", "show", target).fields["plan_id"] == plan_id

    def test_a_target_is_replaced_by_a_file(self, remote: Cli, target: str, files: Path) -> None:
        (files / "target.yaml").write_text(TARGET + "mode: apply\n")
        assert remote("targets", "put", target, files / "target.yaml").fields["mode"] == "apply"

    def test_the_reported_status_and_pending_changes_are_shown(self, remote: Cli, target: str, service: str) -> None:
        status = TargetStatus.model_validate(
            {
                "phase": Phase.RECOMMENDED,
                "observed_at": OBSERVED_AT,
                "planned": {"H100": 3},
                "applied": {"H100": 1},
                "changes": [Change(gpu="H100", deployment="large", replicas_now=1, replicas_planned=3)],
                "message": "two more",
            }
        )
        with Client(service, token=ADMIN_TOKEN) as client:
            client.report_target_status(target, status)
        row = remote("targets", "list").stdout.splitlines()[1]
        reported = f"recommended  3 H100   1 H100   {OBSERVED_AT:%Y-%m-%d %H:%M:%SZ}  two more"
        assert row.split(maxsplit=3)[3] == reported
        shown = remote("targets", "show", target)
        assert shown.fields["planned.H100"] == "3"
        assert shown.stdout.endswith(
            "\nchange  deployment  now  planned\n"
            "H100    large         1        3\n"
        )  # fmt: skip

    def test_the_progress_of_an_expert_map_rollout_is_shown(self, remote: Cli, target: str, service: str) -> None:
        placement_id = "00000000-0000-7000-8000-000000000000"
        progress = {
            "placement_id": placement_id,
            "phase": "waiting",
            "replicas": 4,
            "loaded": 1,
            "waiting": 3,
            "turn": "r2",
        }
        status = TargetStatus.model_validate(
            {"phase": Phase.APPLYING, "observed_at": OBSERVED_AT, "expert_maps": {"H100": progress}}
        )
        with Client(service, token=ADMIN_TOKEN) as client:
            client.report_target_status(target, status)
        assert remote("targets", "show", target).stdout.splitlines()[-1].split() == [
            *("H100", placement_id, "waiting", "4", "1", "3", "0", "r2")
        ]

    def test_a_pending_change_set_is_approved(self, remote: Cli, target: str, service: str, files: Path) -> None:
        nothing = remote("targets", "approve", target)
        assert (nothing.code, nothing.refused) == (1, [f"target {target}: no change set is ready"])
        plan_id = remote("plan", files / "request.yaml", "-o", "json").json["id"]
        remote("targets", "set", target, "--plan", plan_id)
        status = TargetStatus.model_validate(
            {
                "phase": Phase.AWAITING_APPROVAL,
                "observed_at": OBSERVED_AT,
                "plan_id": plan_id,
                "digest": "a" * 64,
                "changes": [Change(gpu="H100", deployment="large", replicas_now=1, replicas_planned=3)],
            }
        )
        with Client(service, token=ADMIN_TOKEN) as client:
            client.report_target_status(target, status)
        assert remote("targets", "approve", target, "--digest", "nonsense").code == 2
        other = remote("targets", "approve", target, "--digest", "b" * 64)
        assert (other.code, "another change set is ready" in other.refused[0]) == (1, True)
        own = remote("targets", "approve", target)
        assert (own.code, "reported this change set of target 'chat'" in own.refused[0]) == (1, True)
        approver = remote("tokens", "create", "approver", "--scope", "approve", "--scope", "read").stdout.strip()
        (files / "approver").write_text(approver)
        remote_options = ("--token-file", files / "approver")
        assert remote("targets", "approve", target, *remote_options).stdout.splitlines()[-1].split() == [
            "H100",
            "large",
            "1",
            "3",
        ]
        again = remote("targets", "approve", target, "-o", "json", *remote_options).json
        assert (again["plan_id"], again["digest"], again["number"]) == (plan_id, "a" * 64, 1)

    def test_a_dry_run_stores_no_status(self, remote: Cli, target: str) -> None:
        (found,) = remote("controller", "plan", target, "-o", "json").json["targets"]
        assert (found["target"], found["mode"], found["phase"], found["next_changes"]) == (
            target,
            "observe",
            "failed",
            [],
        )
        (listed,) = remote("targets", "list", "-o", "json").json["targets"]
        assert listed["status"] is None
        assert "nothing to change" in remote("controller", "plan").stdout

    def test_an_unknown_plan_is_refused(self, remote: Cli, target: str) -> None:
        done = remote("targets", "set", target, "--plan", "nonsense")
        assert (done.code, done.refused[0].partition(";")[0]) == (2, "plan_id: there is no plan 'nonsense'")

    @pytest.mark.parametrize("verb", [("show",), ("set", "--mode", "apply"), ("delete",)])
    def test_a_missing_target_is_reported(self, remote: Cli, verb: tuple[str, ...]) -> None:
        done = remote("targets", verb[0], "nobody", *verb[1:])
        assert (done.code, done.refused) == (1, ["GET /v1/targets/nobody: 404 Not Found: there is no target 'nobody'"])

    def test_a_target_is_deleted(self, remote: Cli, target: str) -> None:
        assert remote("targets", "delete", target, "-o", "json").json == {"name": target, "deleted": True}
        assert remote("targets", "list", "-o", "json").json["targets"] == []


class TestFreeze:
    def test_targets_are_frozen_and_thawed(self, remote: Cli) -> None:
        frozen = remote("freeze", "the chiller is being replaced", "--format", "json")
        assert frozen.json == {"frozen": True, "reason": "the chiller is being replaced"}
        listed = remote("targets", "list")
        assert listed.stderr == "frozen, nothing is written to any target: the chiller is being replaced\n"
        assert remote("targets", "list", "-o", "json").json["freeze"] == frozen.json
        assert remote("thaw").stdout == "thawed\n"
        assert remote("targets", "list").stderr == ""

    def test_a_freeze_requires_a_reason(self, remote: Cli) -> None:
        done = remote("freeze", "")
        assert (done.code, done.refused) == (2, ["freeze: reason: string should have at least 1 character, got ''"])


class TestTokens:
    def test_a_new_token_is_alone_on_stdout_and_works_until_it_is_revoked(
        self, remote: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = remote("tokens", "create", "dashboard", "--scope", "read", "--scope", "plan")
        secret = made.stdout.removesuffix("\n")
        token_id = secret.split("_")[1]
        assert made.stderr == f"token {token_id} for dashboard; keep this, it is not shown again:\n"
        assert secret not in made.stderr
        assert secret not in remote("tokens", "list", "-o", "json").stdout

        monkeypatch.setenv("FLEETWRIGHT_TOKEN", secret)
        assert remote("plans", "list").code == 0
        monkeypatch.setenv("FLEETWRIGHT_TOKEN", ADMIN_TOKEN)
        assert remote("tokens", "revoke", token_id, "-o", "json").json == {"id": token_id, "revoked": True}
        monkeypatch.setenv("FLEETWRIGHT_TOKEN", secret)
        assert remote("plans", "list").code == 1

    def test_a_new_token_as_json(self, remote: Cli) -> None:
        made = remote("tokens", "create", "ci", "--scope", "read", "--expires-in-s", "60", "--format", "json").json
        assert made["secret"].startswith(f"fw_{made['info']['id']}_")
        row = next(line for line in remote("tokens", "list").stdout.splitlines() if made["info"]["id"] in line)
        assert row.count("Z  ") == 2  # created, expires

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("", "--scope", "read"), "token: name: string should have at least 1 character, got ''"),
            (("ci", "--scope", "read", "--expires-in-s", "999999999999"), "token: expires_in_s: "),
        ],
    )
    def test_an_invalid_token_request_is_refused(self, remote: Cli, args: tuple[str, ...], message: str) -> None:
        done = remote("tokens", "create", *args)
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith(message)


class TestAudit:
    def test_a_change_is_in_the_audit_log(self, remote: Cli, files: Path) -> None:
        remote("offers", "push", files / "offers.yaml")
        (newest,) = remote("audit", "list", "--most", "1", "-o", "json").json
        assert newest["actor"] == "token:admin0000000"
        heading, row = remote("audit", "list", "--most", "1").stdout.splitlines()
        assert heading.split() == ["seq", "at", "actor", "action", "subject"]
        assert row.split()[0] == str(newest["seq"])

    def test_the_audit_chain_is_intact(self, remote: Cli) -> None:
        assert remote("audit", "check").stdout.endswith(" entries, intact\n")
        assert remote("audit", "check", "-o", "json").json["intact"] is True


class TestRefusals:
    def test_a_request_without_a_token_is_refused(self, remote: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FLEETWRIGHT_TOKEN")
        done = remote("plans", "list")
        assert done.code == 1
        (line,) = done.refused
        assert line.startswith("GET /v1/plans: 401 Unauthorized: ")
        assert line.endswith("name a token with --token-file, FLEETWRIGHT_TOKEN or FLEETWRIGHT_TOKEN_FILE")

    def test_an_unknown_token_is_refused_and_not_printed(self, remote: Cli, tmp_path: Path) -> None:
        unknown = f"fw_000000000000_{'x' * 43}"
        (tmp_path / "token").write_text(unknown)
        done = remote("plans", "list", "--token-file", tmp_path / "token")
        assert done.code == 1
        (line,) = done.refused
        assert line.startswith("GET /v1/plans: 401 Unauthorized: ")
        assert unknown not in line

    def test_a_token_without_the_scope_is_refused(self, remote: Cli, files: Path, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(remote("tokens", "create", "reader", "--scope", "read").stdout)
        for command in (("audit", "list"), ("offers", "push", files / "offers.yaml"), ("thaw",)):
            done = remote(*command, "--token-file", tmp_path / "token")
            assert done.code == 1
            (line,) = done.refused
            assert ": 403 Forbidden: " in line

    @pytest.mark.parametrize("content", [b"", b"\xff", b"two words"])
    def test_an_invalid_token_file_is_refused(self, remote: Cli, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "token").write_bytes(content)
        done = remote("plans", "list", "--token-file", tmp_path / "token")
        assert done.code == 2
        (line,) = done.refused
        assert line.startswith("token")
        assert "two words" not in line

    def test_a_missing_token_file_is_reported(self, remote: Cli) -> None:
        done = remote("plans", "list", "--token-file", "none")
        assert (done.code, done.refused) == (2, ["token file none: No such file or directory"])
