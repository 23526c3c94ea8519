"""The newest stored id of a list, after which the next one is made."""

from datetime import UTC, datetime

import pytest

from api.store import DiagnosisHead, ResultSummary, Store, StoredResult

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, tzinfo=UTC)


async def test_every_kind_of_result_has_its_own_newest_id(database_url: str) -> None:
    store = Store(database_url)
    async with store.transaction() as tx:
        for kind, result_id in (("plan", "a"), ("plan", "c"), ("plan", "b"), ("placement", "d")):
            head = ResultSummary(kind=kind, id=result_id, created_at=NOW, created_by="x", summary="{}")
            await tx.results.add(StoredResult(head=head, request="{}", result="{}"))
        assert [await tx.results.newest_id(kind) for kind in ("plan", "placement", "power plan")] == ["c", "d", None]
        assert await tx.results.exists(kind="plan", result_id="b")
        assert not await tx.results.exists(kind="placement", result_id="b")
    await store.close()


async def test_diagnoses_have_a_newest_id(database_url: str) -> None:
    store = Store(database_url)
    async with store.transaction() as tx:
        assert await tx.diagnoses.newest_id() is None
        for diagnosis_id in ("b", "a"):
            head = DiagnosisHead(diagnosis_id, NOW, "x", "job", "crash", "node", NOW, "{}", None)
            await tx.diagnoses.add(head, bundle=None)
        assert await tx.diagnoses.newest_id() == "b"
    await store.close()
