"""Wanted replica counts over HTTP: JSON, Fleetwright's gauges, and the opted-in pages of llm-d and AIBrix."""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from api.schemas.applications import KubernetesScale
from api.schemas.targets import TargetSpec
from api.schemas.tokens import TokenScope
from api.server import Settings
from api.server.examples import bodies
from api.server.wanted import Dialect
from tests.testbed.published import EXAMPLES, documents
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
PREFILL, DECODE = "H100-SXM/prefill", "H100-SXM/decode"
OBJECTS = {PREFILL: "chat-prefill", DECODE: "chat-decode"}


@pytest.fixture
async def service(start_service: StartService, sqlite_url: str) -> AsyncIterator[RunningService]:
    async with start_service(sqlite_url, publish="llm-d,aibrix") as running:
        await running.first_token_stored()
        yield running


@pytest.fixture
async def admin(service: RunningService) -> AsyncIterator[httpx.AsyncClient]:
    async with service.client() as client:
        yield client


async def register(
    admin: httpx.AsyncClient, name: str = "chat", *, objects: Mapping[str, Any] | None = None, mode: str = "recommend"
) -> None:
    plan = (await admin.post("/v1/plans", json=bodies()["create_plan"])).json()
    named = {part: {"name": each} if isinstance(each, str) else each for part, each in (objects or OBJECTS).items()}
    application = {"kind": "kubernetes_scale", "namespace": "ml", "objects": named}
    spec = {"workload": "chat", "application": application, "mode": mode, "plan_id": plan["id"]}
    made = await admin.put(f"/v1/targets/{name}", json=spec, headers=CREATE)
    assert made.status_code == 201, made.text


async def report(
    admin: httpx.AsyncClient, wanted: Mapping[str, int] | None, *, applied: Mapping[str, int] | None = None, **more: Any
) -> None:
    at = "2026-11-21T12:00:00Z"
    status = {"phase": "recommended", "observed_at": at, "applied": dict(applied or {})}
    if wanted is not None:
        status["wanted"] = {"plan_id": "p", "at": at, "replicas": dict(wanted)}
    target = more.pop("target", "chat")
    sent = await admin.put(f"/v1/targets/{target}/status", json=status | more)
    assert sent.status_code == 204, sent.text


async def samples(service: RunningService, path: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a page that a caller without a token reads, by family."""
    async with service.client(None) as anyone:
        answer = await anyone.get(path)
    assert answer.status_code == 200, answer.text
    return {
        family.name: [(dict(sample.labels), sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(answer.text)
    }


async def test_a_reader_gets_the_counts_with_their_objects_and_age(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3, DECODE: 5})
    service.clock.advance(12.0)
    async with service.client(TokenScope.READ) as reader:
        answer = await reader.get("/v1/targets/chat/wanted")
    assert answer.status_code == 200
    assert (answer.json()["target"], answer.json()["plan_id"], answer.json()["age_s"]) == ("chat", "p", 12.0)
    described = {"unit": "Deployment/chat-decode", "namespace": "ml", "kind": "Deployment", "name": "chat-decode"}
    assert answer.json()["parts"][0] == {"part": DECODE, "replicas": 5} | described


@pytest.mark.parametrize("mode", ["observe", "apply"])
async def test_without_the_mode_recommend_nothing_is_published(
    service: RunningService, admin: httpx.AsyncClient, mode: str
) -> None:
    await register(admin, mode=mode)
    await report(admin, {PREFILL: 3, DECODE: 5}, applied={PREFILL: 1, DECODE: 1})
    answer = await admin.get("/v1/targets/chat/wanted")
    assert answer.status_code == 404
    assert answer.json()["detail"].endswith(f"it is in mode {mode}; allowed: recommend")
    found = await samples(service, "/metrics")
    assert found["fleetwright_target_replicas_wanted"] == found["fleetwright_target_wanted_age_seconds"] == []
    assert (await samples(service, "/metrics/llm-d"))["wva_desired_replicas"] == []
    assert (await admin.get("/metrics/ml/chat-prefill")).status_code == 404


async def test_a_report_without_counts_keeps_the_last_ones_and_zero_is_a_count(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin)
    await report(admin, {PREFILL: 0, DECODE: 5})
    service.clock.advance(30.0)
    await report(admin, None, phase="failed")
    found = await samples(service, "/metrics")
    values = {labels["gpu"]: value for labels, value in found["fleetwright_target_replicas_wanted"]}
    assert values == {PREFILL: 0, DECODE: 5}
    assert found["fleetwright_target_wanted_age_seconds"] == [({"target": "chat"}, 30.0)]


async def test_a_part_that_the_target_no_longer_has_is_not_published(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin, objects={PREFILL: "chat-prefill"})
    await report(admin, {PREFILL: 3, DECODE: 5})
    page = await samples(service, "/metrics/llm-d")
    assert [labels["variant_name"] for labels, _ in page["wva_desired_replicas"]] == ["chat-prefill"]


async def test_a_change_of_the_counts_is_audited_once(admin: httpx.AsyncClient) -> None:
    await register(admin)
    for replicas in (3, 3, 4):
        await report(admin, {PREFILL: replicas, DECODE: 5})
    entries = (await admin.get("/v1/audit", params={"limit": 50})).json()["items"]
    reported = [entry["detail"]["wanted"][PREFILL] for entry in entries if entry["action"] == "target.reported"]
    assert sorted(reported) == [3, 4]


async def test_a_token_of_another_project_does_not_read_the_counts(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3})
    await admin.put("/v1/projects/team-a", json={}, headers=CREATE)
    made = await admin.post("/v1/tokens", json={"name": "a", "scopes": ["read"], "project": "team-a"})
    async with service.client(None) as other:
        other.headers["Authorization"] = f"Bearer {made.json()['secret']}"
        answer = await other.get("/v1/targets/chat/wanted")
    assert answer.status_code == 404


async def test_the_page_of_llm_d_has_its_gauges_and_labels(service: RunningService, admin: httpx.AsyncClient) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3, DECODE: 5}, applied={PREFILL: 2, DECODE: 0})
    page = await samples(service, "/metrics/llm-d")
    prefill = {"variant_name": "chat-prefill", "namespace": "ml", "accelerator_type": "H100-SXM"}
    decode = prefill | {"variant_name": "chat-decode"}
    assert page == {
        "wva_desired_replicas": [(decode, 5.0), (prefill, 3.0)],
        "wva_current_replicas": [(decode, 0.0), (prefill, 2.0)],
        "wva_desired_ratio": [(decode, 5.0), (prefill, 1.5)],
    }


async def test_current_replicas_that_could_not_be_observed_have_no_series(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3, DECODE: 5})
    page = await samples(service, "/metrics/llm-d")
    assert len(page["wva_desired_replicas"]) == 2
    assert page["wva_current_replicas"] == page["wva_desired_ratio"] == []


async def test_an_object_of_two_targets_is_published_by_no_page(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    await register(admin)
    await register(admin, "other", objects={"L4": "chat-prefill"})
    await report(admin, {PREFILL: 3, DECODE: 5})
    await report(admin, {"L4": 9}, target="other")
    found = (await samples(service, "/metrics"))["fleetwright_target_replicas_wanted"]
    assert [(labels["scaled_name"], value) for labels, value in found] == [("chat-decode", 5.0)]
    page = await samples(service, "/metrics/llm-d")
    assert [labels["variant_name"] for labels, _ in page["wva_desired_replicas"]] == ["chat-decode"]
    assert (await admin.get("/metrics/ml/chat-prefill")).status_code == 404


async def test_two_kinds_of_one_name_are_two_series_but_one_variant_is_ambiguous(
    service: RunningService, admin: httpx.AsyncClient
) -> None:
    lws = {"api_version": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat"}
    await register(admin, objects={"L4": lws, "H100-SXM": "chat"})
    await report(admin, {"L4": 1, "H100-SXM": 2})
    found = (await samples(service, "/metrics"))["fleetwright_target_replicas_wanted"]
    assert {labels["scaled_kind"]: value for labels, value in found} == {"LeaderWorkerSet": 1, "Deployment": 2}
    assert (await samples(service, "/metrics/llm-d"))["wva_desired_replicas"] == []
    assert (await samples(service, "/metrics/ml/chat"))["vllm:deployment_replicas"][0][1] == 2


async def test_the_page_of_aibrix_has_one_gauge(service: RunningService, admin: httpx.AsyncClient) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3, DECODE: 5})
    assert await samples(service, "/metrics/ml/chat-prefill") == {
        "vllm:deployment_replicas": [({"model_name": "chat"}, 3.0)]
    }
    unknown = await admin.get("/metrics/other/chat-prefill")
    assert (unknown.status_code, unknown.json()["detail"]) == (
        404,
        "there is no wanted count of an object other/chat-prefill",
    )


@pytest.mark.parametrize("path", ["/metrics/llm-d", "/metrics/ml/chat-prefill"])
async def test_the_pages_are_off_by_default(sqlite_service: RunningService, path: str) -> None:
    async with sqlite_service.client() as admin:
        await register(admin)
        await report(admin, {PREFILL: 3, DECODE: 5})
        answer = await admin.get(path)
    assert answer.status_code == 404
    assert "the setting `publish` does not contain" in answer.json()["detail"]


async def test_the_pages_keep_the_last_counts_while_the_database_fails(
    service: RunningService, admin: httpx.AsyncClient, sqlite_url: str
) -> None:
    await register(admin)
    await report(admin, {PREFILL: 3, DECODE: 5})
    before = await samples(service, "/metrics/ml/chat-prefill")
    with closing(sqlite3.connect(sqlite_url.partition("///")[2])) as database:
        database.execute("ALTER TABLE target_status RENAME TO lost")
    service.clock.advance(60.0)
    assert (await admin.get("/v1/targets/chat/wanted")).status_code == 503
    assert await samples(service, "/metrics/ml/chat-prefill") == before


def test_the_setting_takes_a_list_with_commas_and_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWRIGHT_PUBLISH", "llm-d, aibrix")
    assert Settings().publish == {Dialect.LLM_D, Dialect.AIBRIX}
    monkeypatch.setenv("FLEETWRIGHT_PUBLISH", "")
    assert Settings().publish == frozenset()
    monkeypatch.setenv("FLEETWRIGHT_PUBLISH", "hpa")
    with pytest.raises(ValidationError, match="publish"):
        Settings()


def test_the_objects_of_the_examples_are_those_of_the_example_target() -> None:
    (document,) = documents(EXAMPLES / "target.yaml")
    application = TargetSpec.model_validate(document).application
    assert isinstance(application, KubernetesScale)
    owned = {(application.namespace, each.kind, each.name) for each in application.objects.values()}
    scaled = {
        (each["metadata"]["namespace"], each["spec"]["scaleTargetRef"]["kind"], each["spec"]["scaleTargetRef"]["name"])
        for path in sorted(EXAMPLES.glob("*.yaml"))
        for each in documents(path)
        if isinstance(each, dict) and "scaleTargetRef" in each.get("spec", {})
    }
    assert scaled == owned
