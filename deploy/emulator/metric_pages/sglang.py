"""SGLang's page of metrics (`--enable-metrics`), by version.

The scheduler's metrics have its ranks as labels.  Those of the tokenizer process have the model and the engine type
only, and SGLang counts a request's tokens there when the request ends.
"""

from collections.abc import Sequence
from typing import Literal

from deploy.emulator.engine import Token, Work
from deploy.emulator.metric_pages.page import EngineState, Family, Kind, RequestRecord, Series

VERSIONS = ("0.5.4", "0.5.6", "0.5.9", "0.5.12", "0.5.15", "0.5.18")
LATEST = VERSIONS[-1]
EngineType = Literal["unified", "prefill", "decode"]
TOKENIZER = ("model_name", "engine_type")
SCHEDULER = (*TOKENIZER, "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank")
TTFT_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
E2E_S = (*TTFT_S, 600, 1200, 1800, 2400)
TOKEN_S = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8),
    *(1.0, 2.0, 4.0, 6.0, 8.0),
)
QUEUE_S = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200),
    *(300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000),
)
TOKENS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000, 12_500, 15_000, 17_500),
    *(20_000, 22_500, 25_000, 27_500, 30_000, 35_000, 40_000, 60_000, 80_000, 100_000, 200_000, 300_000, 400_000),
    *(600_000, 800_000, 1_000_000, 1_100_000),
)


def families(*, version: str = LATEST) -> tuple[Family, ...]:
    at = VERSIONS.index(version)
    found: list[Family] = []

    def add(
        name: str,
        kind: Kind,
        help_: str,
        *,
        labels: tuple[str, ...],
        buckets: Sequence[float] = (),
        since: str = VERSIONS[0],
    ) -> None:
        if VERSIONS.index(since) <= at:
            family = Family(name=f"sglang:{name}", kind=kind, help=help_, labels=labels, buckets=tuple(buckets))
            found.append(family)

    streamed = (*TOKENIZER, "is_streaming")
    for name, help_, since in (
        ("num_running_reqs", "The number of running requests.", "0.5.4"),
        ("num_queue_reqs", "The number of requests in the waiting queue.", "0.5.4"),
        ("num_used_tokens", "The number of used tokens.", "0.5.4"),
        ("token_usage", "The token usage.", "0.5.4"),
        ("gen_throughput", "The generation throughput (token/s).", "0.5.4"),
        ("cache_hit_rate", "The prefix cache hit rate.", "0.5.4"),
        ("num_retracted_reqs", "The number of retracted requests.", "0.5.4"),
        ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", "0.5.6"),
    ):
        add(name, "gauge", help_, labels=SCHEDULER, since=since)
    retracted = "Total number of retracted requests."
    add("num_retracted_requests_total", "counter", retracted, labels=SCHEDULER, since="0.5.9")
    queue = "Histogram of queueing time in seconds."
    add("queue_time_seconds", "histogram", queue, labels=SCHEDULER, buckets=QUEUE_S)
    add("prompt_tokens_total", "counter", "Number of prefill tokens processed.", labels=streamed)
    add("generation_tokens_total", "counter", "Number of generation tokens processed.", labels=streamed)
    cached = "Number of cached prompt tokens by source (device/host/storage)."
    add("cached_tokens_total", "counter", cached, labels=(*TOKENIZER, "cache_source"))
    add("num_requests_total", "counter", "Number of requests processed.", labels=streamed)
    add("num_aborted_requests_total", "counter", "Number of requests aborted.", labels=TOKENIZER)
    for name, help_, since in (
        ("prompt_tokens_histogram", "Histogram of prompt token length.", "0.5.4"),
        ("uncached_prompt_tokens_histogram", "Histogram of uncached (compute) prompt token length.", "0.5.12"),
        ("generation_tokens_histogram", "Histogram of generation token length.", "0.5.4"),
    ):
        add(name, "histogram", help_, labels=TOKENIZER, buckets=TOKENS, since=since)
    ttft = "Histogram of time to first token in seconds."
    add("time_to_first_token_seconds", "histogram", ttft, labels=streamed, buckets=TTFT_S)
    itl = "Histogram of inter-token latency in seconds."
    add("inter_token_latency_seconds", "histogram", itl, labels=TOKENIZER, buckets=TOKEN_S)
    e2e = "Histogram of End-to-end request latency in seconds"
    add("e2e_request_latency_seconds", "histogram", e2e, labels=streamed, buckets=E2E_S)
    return tuple(found)


class SglangPage:
    def __init__(self, *, model: str, engine_type: EngineType = "unified", version: str = LATEST) -> None:
        self.families: Sequence[Family] = families(version=version)
        ranks = dict.fromkeys(SCHEDULER[len(TOKENIZER) :], "0")
        constant = {"model_name": model, "engine_type": engine_type, **ranks}
        self._series = Series(families=self.families, constant=constant)
        self._prompt_tokens = self._loaded_tokens = self._generated = 0
        self._previous = (0.0, 0)  # time and tokens of the last scrape

    def token(self, request: RequestRecord, token: Token) -> None:
        self._generated += 1
        if token.index > 0:
            self._series.observe("sglang:inter_token_latency_seconds", token.at_s - request.last_token_s)
            return
        self._prompt_tokens += request.prompt_tokens
        self._loaded_tokens += request.loaded_tokens
        ttft_s = token.at_s - request.arrived_s
        self._series.observe("sglang:queue_time_seconds", token.started_s - request.arrived_s)
        self._series.observe("sglang:time_to_first_token_seconds", ttft_s, is_streaming=str(request.streamed))

    def iteration(self, work: Work) -> None:
        """SGLang has no metric of iterations."""

    def ended(self, request: RequestRecord, *, finished: bool) -> None:
        series, streamed = self._series, str(request.streamed)
        if not finished:
            series.add("sglang:num_aborted_requests_total")
            return
        series.add("sglang:prompt_tokens_total", request.prompt_tokens, is_streaming=streamed)
        series.add("sglang:generation_tokens_total", request.generated, is_streaming=streamed)
        series.add("sglang:num_requests_total", is_streaming=streamed)
        if request.loaded_tokens:
            series.add("sglang:cached_tokens_total", request.loaded_tokens, cache_source="device")
        series.observe("sglang:prompt_tokens_histogram", request.prompt_tokens)
        series.observe("sglang:uncached_prompt_tokens_histogram", request.prompt_tokens - request.loaded_tokens)
        series.observe("sglang:generation_tokens_histogram", request.generated)
        series.observe("sglang:e2e_request_latency_seconds", request.e2e_s, is_streaming=streamed)

    def text(self, state: EngineState) -> bytes:
        then_s, then_tokens = self._previous
        passed_s = state.now_s - then_s
        rate = (self._generated - then_tokens) / passed_s if passed_s > 0 else 0.0
        self._previous = (state.now_s, self._generated)
        for name, value in (
            ("num_running_reqs", state.running),
            ("num_queue_reqs", state.waiting),
            ("num_used_tokens", state.cached_tokens),
            ("token_usage", state.cached_tokens / state.cache_tokens),
            ("gen_throughput", rate),
            ("cache_hit_rate", self._loaded_tokens / self._prompt_tokens if self._prompt_tokens else 0.0),
            ("max_total_num_tokens", state.cache_tokens),
            ("num_retracted_requests_total", state.preemptions),
        ):
            self._series.set(f"sglang:{name}", value)
        return self._series.text()
