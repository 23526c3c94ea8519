"""Demand of real metrics pages: an emulated engine as a process, polled by the reader."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.schemas.demand_sources import DemandSources, MetricsProfile
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts
from deploy.demand.prometheus import range_query
from deploy.demand.reader import demand_reader
from planner.demand.profiles import PROFILES
from planner.demand.replicas import Window
from tests.testbed.processes import Process

pytestmark = pytest.mark.anyio

ALLOWED = AllowedHosts.parse(LOOPBACK_HOSTS)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    argv = [sys.executable, "-m", "deploy.emulator.openai_server", "--gpu", "H100-SXM", "--time-scale", "200"]
    folder = tmp_path_factory.mktemp("engine")
    with Process.start(argv, name="engine", log_dir=folder, cwd=Path(__file__).parents[3]) as process:
        process.wait_ready(lambda: '"url"' in process.log_tail())
        yield json.loads(process.log_tail(1))["url"]


def sources(**source: object) -> DemandSources:
    return DemandSources.model_validate({"sources": [source]})


def serve(url: str, requests: int) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        for _ in range(requests):
            client.post("/v1/completions", json={"prompt": "x" * 4 * 300, "max_tokens": 20}).raise_for_status()


async def test_pages_are_polled_and_read_as_a_window(engine: str) -> None:
    demand = sources(kind="engine_metrics", profile="vllm", parts={"H100-SXM": [f"{engine}/metrics"]})
    async with demand_reader(allowed=ALLOWED) as reader:
        for at_s in (1_000.0, 1_030.0, 1_060.0):
            await reader.poll([demand], at_s=at_s)
            if at_s < 1_060.0:
                serve(engine, 30)
        found = await reader.read(demand, window=Window(1_000.0, 1_060.0), expected_replicas={})
    assert found.problems == ()
    assert found.arrivals_rps == pytest.approx(1.0)
    assert found.input_tokens is not None
    assert found.input_tokens.mean == pytest.approx(300)
    assert found.parts["H100-SXM"].replicas == 1


async def test_a_page_that_does_not_answer_is_a_problem(engine: str) -> None:
    pages = [f"{engine}/metrics", "http://127.0.0.1:9/metrics"]
    demand = sources(kind="engine_metrics", profile="vllm", parts={"H100-SXM": pages})
    async with demand_reader(allowed=ALLOWED) as reader:
        for at_s in (1_000.0, 1_060.0):
            await reader.poll([demand], at_s=at_s)
        found = await reader.read(demand, window=Window(1_000.0, 1_060.0), expected_replicas={})
    assert found.problems[0].startswith("unreachable: http://127.0.0.1:9/metrics does not respond")
    assert "missing: 1 of 2 running replicas of H100-SXM export samples" in found.problems


async def test_a_server_that_is_no_prometheus_is_a_problem(engine: str) -> None:
    demand = sources(kind="prometheus", url=engine, profile="vllm", parts={"*": {}})
    async with demand_reader(allowed=ALLOWED) as reader:
        found = await reader.read(demand, window=Window(1_000.0, 1_060.0), expected_replicas={})
    assert found.problems == (f"unreachable: {engine}/api/v1/query returned 404",)


async def test_a_host_that_is_not_allowed_is_not_called(engine: str) -> None:
    demand = sources(kind="prometheus", url=engine, profile="vllm", parts={"*": {}})
    async with demand_reader(allowed=AllowedHosts.parse([".svc"])) as reader:
        found = await reader.read(demand, window=Window(1_000.0, 1_060.0), expected_replicas={})
    assert found.problems[0].startswith("unreachable: ")


async def test_a_log_without_a_folder_of_logs_is_a_problem() -> None:
    demand = sources(kind="request_log", file="requests.jsonl")
    async with demand_reader(allowed=ALLOWED) as reader:
        found = await reader.read(demand, window=Window(1_000.0, 1_060.0), expected_replicas={})
    assert found.problems == ("unreachable: file: 'requests.jsonl': this controller has no folder of logs",)


def test_a_query_reads_all_series_of_the_profile_from_before_the_window() -> None:
    selector = {"namespace": 'a"b'}
    source = sources(
        kind="prometheus", url="http://p:9090", profile="vllm", parts={"*": {}}, selector=selector
    ).sources[0]
    assert source.kind == "prometheus"
    query = range_query(source, profile=PROFILES["vllm"], window=Window(0, 60))
    assert query.endswith('namespace=~"a\\"b"}[150s]')
    assert "vllm:request_prompt_tokens_bucket" in query


def test_the_profiles_are_those_of_the_schema() -> None:
    assert {profile.value for profile in MetricsProfile} == set(PROFILES)
