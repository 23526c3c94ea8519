import gc
import weakref
from dataclasses import replace
from datetime import UTC, datetime

from api.server.newest_version_cache import NewestVersionCache
from api.store import DocumentRecord

FIRST = DocumentRecord(
    kind="target", name="chat", version=1, body="{}", created_at=datetime(2026, 1, 1, tzinfo=UTC), created_by="ops"
)


class Result:
    def __init__(self, stored: DocumentRecord) -> None:
        self.version = stored.version


def test_each_version_is_computed_once() -> None:
    computed: list[int] = []

    def compute(stored: DocumentRecord) -> int:
        computed.append(stored.version)
        return stored.version

    cache = NewestVersionCache(compute, max_documents=8)
    second = replace(FIRST, version=2)
    assert [cache.get(each) for each in (FIRST, FIRST, second, second)] == [1, 1, 2, 2]
    assert computed == [1, 2]


def test_the_result_of_an_older_version_is_released() -> None:
    cache = NewestVersionCache(Result, max_documents=8)
    old = weakref.ref(cache.get(FIRST))
    assert cache.get(replace(FIRST, version=2)).version == 2
    gc.collect()
    assert old() is None


def test_a_document_with_the_same_version_and_another_body_is_computed_again() -> None:
    cache = NewestVersionCache(lambda stored: stored.body, max_documents=8)
    assert [cache.get(each) for each in (FIRST, replace(FIRST, body="[]"))] == ["{}", "[]"]


def test_the_number_of_kept_results_is_limited() -> None:
    cache = NewestVersionCache(Result, max_documents=2)
    kept = [weakref.ref(cache.get(replace(FIRST, name=f"t{number}"))) for number in range(100)]
    gc.collect()
    assert sum(each() is not None for each in kept) <= 2
