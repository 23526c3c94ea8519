"""Requests that an engine runs or queues, from the `/metrics` page of its pod."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from deploy.common.kubernetes_objects import Pod
from deploy.common.text import reason_of

PAGE_TIMEOUT_S: Final = 3.0
CONCURRENT_PAGES: Final = 32

# Requests that are lost when the pod stops.  A metric that is missing, as the queues of another role, counts as none.
RUNNING_METRICS: Final = frozenset(
    {"vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running"}
)
QUEUE_METRICS: Final = frozenset(
    {
        "vllm:num_requests_waiting",
        "trtllm_num_requests_waiting",
        "sglang:num_queue_reqs",
        "sglang:num_grammar_queue_reqs",
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    }
)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    requests: float | None  # None: not known
    reason: str = ""  # why it is not known


def requests_in(page: str) -> EngineLoad:
    """Sum the running and queued requests of all engines of a page."""
    found, requests = False, 0.0
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found = found or sample.name in RUNNING_METRICS
                if sample.name in RUNNING_METRICS or sample.name in QUEUE_METRICS:
                    requests += sample.value
    except ValueError as error:
        return EngineLoad(None, f"its page is no metrics page: {reason_of(error)}")
    if not found or isnan(requests):
        return EngineLoad(None, f"its page has none of {', '.join(sorted(RUNNING_METRICS))}")
    return EngineLoad(requests)


async def read_loads(http: httpx.AsyncClient, pods: Iterable[Pod], *, port: int) -> dict[str, EngineLoad]:
    """Read the pages of these pods at once, and return their requests by pod."""
    slots = asyncio.Semaphore(CONCURRENT_PAGES)

    async def one(pod: Pod) -> tuple[str, EngineLoad]:
        async with slots:
            return pod.name, await _read_load(http, pod, port=port)

    return dict(await asyncio.gather(*map(one, pods)))


async def _read_load(http: httpx.AsyncClient, pod: Pod, *, port: int) -> EngineLoad:
    if not pod.status.pod_ip or pod.status.phase != "Running":
        return EngineLoad(0.0)  # the engine has not started, or has ended
    host = f"[{pod.status.pod_ip}]" if ":" in pod.status.pod_ip else pod.status.pod_ip
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            page = (await http.get(f"http://{host}:{port}/metrics")).raise_for_status().text
    except httpx.ConnectError as error:
        if not pod.ready:
            return EngineLoad(0.0)  # no process listens
        return EngineLoad(None, reason_of(error))
    except (httpx.HTTPError, TimeoutError) as error:
        return EngineLoad(None, reason_of(error))
    return requests_in(page)
