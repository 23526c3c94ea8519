"""Entries of release 0.1.0 are read under their current action names, and their hashes still hold."""

import pytest

from api.schemas.tokens import Scope
from api.server.routes.audit import RENAMED_ACTIONS
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def test_an_old_action_is_read_under_its_new_name(sqlite_service: RunningService) -> None:
    service = sqlite_service.app.state.service
    async with service.store.transaction() as tx:
        for action in ("fault-verdict.reported", "isolation.keep-out", "plan.created"):
            await service.audit(tx, actor="token:a", action=action, subject="s")
    async with sqlite_service.client(Scope.ADMIN) as client:
        listed = (await client.get("/v1/audit?limit=3")).json()["items"]
        check = (await client.get("/v1/audit/check")).json()
    assert [entry["action"] for entry in listed] == ["plan.created", "quarantine.cordon", "diagnosis.reported"]
    assert check["intact"]


def test_no_new_name_is_an_old_one() -> None:
    assert not RENAMED_ACTIONS.keys() & set(RENAMED_ACTIONS.values())
