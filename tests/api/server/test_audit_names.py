"""Entries of release 0.1.0 are read under their current action names, and their hashes still hold."""

import pytest

from api.schemas.tokens import TokenScope
from api.server.audit_query import RENAMED_ACTIONS
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

ID = "01a1fd26-439a-7ac2-acaa-525066f743ab"
# Every action and subject of release 0.1.0 that has another name now: what was written, and what readers see.
RENAMED = [
    (("fault-verdict.reported", f"faults/verdicts/{ID}"), ("diagnosis.reported", f"faults/diagnoses/{ID}")),
    (("fault-verdict.withdrawn", f"faults/verdicts/{ID}"), ("diagnosis.withdrawn", f"faults/diagnoses/{ID}")),
    (("healing.opened", f"faults/cases/{ID}"), ("remediation.opened", f"faults/cases/{ID}")),
    (("healing.carried-on", f"faults/cases/{ID}"), ("remediation.updated", f"faults/cases/{ID}")),
    (("isolation-rules.replaced", "faults/isolation/rules"), ("quarantine-rules.replaced", "faults/quarantine/rules")),
    (("isolation.wished", "faults/isolation/nodes/n1"), ("quarantine.action-requested", "faults/quarantine/nodes/n1")),
    (
        ("isolation.breaker-wished-closed", "faults/isolation/breaker"),
        ("quarantine.breaker-reset-requested", "faults/quarantine/breaker"),
    ),
    *(
        ((f"isolation.{old}", "faults/isolation/nodes/n1"), (f"quarantine.{new}", "faults/quarantine/nodes/n1"))
        for old, new in {
            **{same: same for same in ("suspect", "clear", "propose", "refuse", "probe", "release")},
            "isolate": "quarantine",
            "keep-out": "cordon",
        }.items()
    ),
    *(
        ((f"isolation.{act}", "faults/isolation/breaker"), (f"quarantine.{act}", "faults/quarantine/breaker"))
        for act in ("open-breaker", "close-breaker")
    ),
]
# Those of release 0.1.0 that keep their names.
KEPT = [
    ("plan.created", f"plans/{ID}"),
    ("placement.created", f"placements/{ID}"),
    ("power-plan.created", f"power/plans/{ID}"),
    ("power-simulation.created", f"power/simulations/{ID}"),
    ("fault-simulation.created", f"faults/simulations/{ID}"),
    *((f"target.{verb}", "targets/chat") for verb in ("created", "replaced", "deleted", "reported", "approved")),
    *((f"power-tree.{verb}", "power/trees/north") for verb in ("created", "replaced", "deleted")),
    *((f"power-budget.{verb}", "power/budgets/row-1") for verb in ("created", "replaced", "deleted")),
    *((f"lease.{verb}", "leases/controller") for verb in ("taken", "given_back")),
    *((f"token.{verb}", "tokens/a") for verb in ("created", "revoked")),
    *((f"fleet.{verb}", "freeze") for verb in ("frozen", "thawed")),
    ("document.replaced", "offers/2"),
]


async def test_an_old_action_is_read_under_its_new_name(sqlite_service: RunningService) -> None:
    service = sqlite_service.app.state.service
    async with service.store.transaction() as tx:
        for action in ("fault-verdict.reported", "isolation.keep-out", "plan.created"):
            await service.audit(tx, actor="token:a", action=action, subject="s")
    async with sqlite_service.client(TokenScope.ADMIN) as client:
        listed = (await client.get("/v1/audit?limit=3")).json()["items"]
        check = (await client.get("/v1/audit/check")).json()
    assert [entry["action"] for entry in listed] == ["plan.created", "quarantine.cordon", "diagnosis.reported"]
    assert check["intact"]


async def test_entries_of_0_1_0_are_read_with_the_current_names(sqlite_service: RunningService) -> None:
    service = sqlite_service.app.state.service
    entries = [*RENAMED, *((each, each) for each in KEPT)]
    async with service.store.transaction() as tx:
        for (action, subject), _ in reversed(entries):
            await service.audit(tx, actor="token:a", action=action, subject=subject)
    async with sqlite_service.client(TokenScope.ADMIN) as client:
        listed = (await client.get(f"/v1/audit?limit={len(entries)}")).json()["items"]
        check = (await client.get("/v1/audit/check")).json()
    assert [(entry["action"], entry["subject"]) for entry in listed] == [read for _, read in entries]
    assert check["intact"]


def test_every_renamed_action_is_tested() -> None:
    assert {action for (action, _), _ in RENAMED} == RENAMED_ACTIONS.keys()


def test_no_new_name_is_an_old_one() -> None:
    assert not RENAMED_ACTIONS.keys() & set(RENAMED_ACTIONS.values())
