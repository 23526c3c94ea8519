"""vLLM's page of metrics, by version.

Versions before 0.19 name some metrics differently; 0.11 has both names of most.  The page lacks metrics of features
that the emulator does not have: speculative decoding, KV connectors, LoRA, estimated FLOPs.
"""

from collections.abc import Sequence
from math import inf

from deploy.emulator.engine import Token, Work
from deploy.emulator.metric_pages.page import ABORTED, FINISHED, EngineState, Family, Kind, RequestRecord, Series

VERSIONS = ("0.10", "0.11", "0.19", "0.23", "0.24", "0.26")
LATEST = VERSIONS[-1]
BLOCK_TOKENS = 16
MODEL = ("model_name", "engine")
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PARAMS_N = (1, 2, 5, 10, 20)
REASONS = ("stop", "length", "abort", "error")
CACHE_CONFIG = (
    "block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "engine",
    "gpu_memory_utilization",
    "num_gpu_blocks",
)


def one_two_five(highest: int) -> tuple[int, ...]:
    """Return 1, 2, 5, 10, 20, ... up to `highest`, the buckets of vLLM's histograms of tokens."""
    powers = (10**exponent for exponent in range(len(str(highest))))
    return tuple(edge for power in powers for edge in (power, 2 * power, 5 * power) if edge <= highest)


def families(*, version: str = LATEST, max_model_len: int) -> tuple[Family, ...]:
    at = VERSIONS.index(version)
    lengths = one_two_five(max_model_len)
    found: list[Family] = []

    def add(
        name: str,
        kind: Kind,
        help_: str,
        *,
        labels: tuple[str, ...] = MODEL,
        buckets: Sequence[float] = (),
        since: str = VERSIONS[0],
        until: str = LATEST,
    ) -> None:
        if VERSIONS.index(since) <= at <= VERSIONS.index(until):
            named = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
            found.append(Family(name=named, kind=kind, help=help_, labels=labels, buckets=tuple(buckets)))

    add("num_requests_running", "gauge", "Number of requests in model execution batches.")
    add("num_requests_waiting", "gauge", "Number of requests waiting to be processed.")
    by_reason = "Number of waiting requests by reason: 'capacity' or 'deferred'."
    add("num_requests_waiting_by_reason", "gauge", by_reason, labels=(*MODEL, "reason"), since="0.23")
    add("engine_sleep_state", "gauge", "Engine sleep state.", labels=(*MODEL, "sleep_state"), since="0.11")
    add("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.")
    add("gpu_cache_usage_perc", "gauge", "GPU KV-cache usage. 1 means 100 percent usage.", until="0.11")
    for name, unit, since, until in (
        ("prefix_cache", "token", "0.10", LATEST),
        ("gpu_prefix_cache", "token", "0.10", "0.11"),
        ("external_prefix_cache", "token", "0.11", LATEST),
        ("mm_cache", "item", "0.11", LATEST),
    ):
        add(f"{name}_queries", "counter", f"Number of queried {unit}s.", since=since, until=until)
        add(f"{name}_hits", "counter", f"Number of cached {unit}s.", since=since, until=until)
    add("num_preemptions", "counter", "Cumulative number of preemption from the engine.")
    add("prompt_tokens", "counter", "Number of prefill tokens processed.")
    add("prompt_tokens_by_source", "counter", "Prompt tokens by source.", labels=(*MODEL, "source"), since="0.19")
    add("prompt_tokens_cached", "counter", "Number of cached prompt tokens.", since="0.19")
    add("generation_tokens", "counter", "Number of generation tokens processed.")
    success = "Count of successfully processed requests."
    add("request_success", "counter", success, labels=(*MODEL, "finished_reason"))
    add("iteration_tokens_total", "histogram", "Number of tokens per engine step.", buckets=ITERATION_TOKENS)
    for name, help_, since in (
        ("request_prompt_tokens", "Number of prefill tokens processed.", "0.10"),
        ("request_generation_tokens", "Number of generation tokens processed.", "0.10"),
        ("request_max_num_generation_tokens", "Maximum number of requested generation tokens.", "0.10"),
        ("request_params_max_tokens", "The max_tokens request parameter.", "0.10"),
        ("request_prefill_kv_computed_tokens", "New KV tokens computed during prefill.", "0.19"),
    ):
        add(name, "histogram", help_, buckets=lengths, since=since)
    add("request_params_n", "histogram", "The n request parameter.", buckets=PARAMS_N)
    add("time_to_first_token_seconds", "histogram", "Time to first token in seconds.", buckets=TTFT_S)
    for name, help_, since, until in (
        ("time_per_output_token_seconds", "Time per output token in seconds.", "0.10", "0.11"),
        ("inter_token_latency_seconds", "Inter-token latency in seconds.", "0.11", LATEST),
        ("request_time_per_output_token_seconds", "Time per output token of a request.", "0.11", LATEST),
    ):
        add(name, "histogram", help_, buckets=TOKEN_S, since=since, until=until)
    for name, help_ in (
        ("e2e_request_latency_seconds", "End to end request latency in seconds."),
        ("request_queue_time_seconds", "Time spent in WAITING phase for request."),
        ("request_inference_time_seconds", "Time spent in RUNNING phase for request."),
        ("request_prefill_time_seconds", "Time spent in PREFILL phase for request."),
        ("request_decode_time_seconds", "Time spent in DECODE phase for request."),
    ):
        add(name, "histogram", help_, buckets=REQUEST_S)
    add("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", labels=CACHE_CONFIG)
    return tuple(found)


class VllmPage:
    def __init__(
        self, *, model: str, cache_tokens: int, max_model_len: int, decode_only: bool = False, version: str = LATEST
    ) -> None:
        """`decode_only`: the cached part of each prompt comes from a prefill replica, not from the prefix cache."""
        self.families: Sequence[Family] = families(version=version, max_model_len=max_model_len)
        self._series = Series(families=self.families, constant={"model_name": model, "engine": "0"})
        self._loaded_from = "external_kv_transfer" if decode_only else "local_cache_hit"
        self._caches = ("external_prefix_cache",) if decode_only else ("prefix_cache", "gpu_prefix_cache")
        for reason in REASONS:
            self._series.add("vllm:request_success_total", 0.0, finished_reason=reason)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
            self._series.add("vllm:prompt_tokens_by_source_total", 0.0, source=source)
        for state in ("awake", "weights_offloaded", "discard_all"):
            self._series.set("vllm:engine_sleep_state", float(state == "awake"), sleep_state=state)
        self._series.set(
            "vllm:cache_config_info",
            1.0,
            block_size=str(BLOCK_TOKENS),
            cache_dtype="auto",
            enable_prefix_caching="True",
            gpu_memory_utilization="0.92",
            num_gpu_blocks=str(cache_tokens // BLOCK_TOKENS),
        )

    def token(self, request: RequestRecord, token: Token) -> None:
        series = self._series
        series.add("vllm:generation_tokens_total")
        if token.index == 0:
            computed = request.prompt_tokens - request.loaded_tokens
            series.add("vllm:prompt_tokens_total", request.prompt_tokens)
            series.add("vllm:prompt_tokens_cached_total", request.loaded_tokens)
            series.add("vllm:prompt_tokens_by_source_total", computed, source="local_compute")
            series.add("vllm:prompt_tokens_by_source_total", request.loaded_tokens, source=self._loaded_from)
            for name in self._caches:
                series.add(f"vllm:{name}_queries_total", request.prompt_tokens)
                series.add(f"vllm:{name}_hits_total", request.loaded_tokens)
            series.observe("vllm:time_to_first_token_seconds", token.at_s - request.arrived_s)
            return
        gap_s = token.at_s - request.last_token_s
        series.observe("vllm:inter_token_latency_seconds", gap_s)
        series.observe("vllm:time_per_output_token_seconds", gap_s)

    def iteration(self, work: Work) -> None:
        self._series.observe("vllm:iteration_tokens_total", work.decoding + work.prompt_tokens)

    def ended(self, request: RequestRecord, *, finished: bool) -> None:
        series = self._series
        series.add("vllm:request_success_total", finished_reason=FINISHED if finished else ABORTED)
        for name, tokens in (
            ("request_prompt_tokens", request.prompt_tokens),
            ("request_generation_tokens", request.generated),
            ("request_max_num_generation_tokens", request.generated),
            ("request_params_max_tokens", request.output_tokens),
            ("request_prefill_kv_computed_tokens", request.prompt_tokens - request.loaded_tokens),
            ("request_params_n", 1),
        ):
            series.observe(f"vllm:{name}", tokens)
        if request.first_token_s == inf:
            return
        if request.tpot_s is not None:
            series.observe("vllm:request_time_per_output_token_seconds", request.tpot_s)
        for name, seconds in (
            ("e2e_request_latency", request.e2e_s),
            ("request_queue_time", request.started_s - request.arrived_s),
            ("request_inference_time", request.last_token_s - request.started_s),
            ("request_prefill_time", request.first_token_s - request.started_s),
            ("request_decode_time", request.last_token_s - request.first_token_s),
        ):
            series.observe(f"vllm:{name}_seconds", seconds)

    def text(self, state: EngineState) -> bytes:
        series = self._series
        series.set("vllm:num_requests_running", state.running)
        series.set("vllm:num_requests_waiting", state.waiting)
        series.set("vllm:num_requests_waiting_by_reason", state.waiting, reason="capacity")
        series.set("vllm:num_requests_waiting_by_reason", 0.0, reason="deferred")
        for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
            series.set(f"vllm:{name}", state.cached_tokens / state.cache_tokens)
        series.set("vllm:num_preemptions_total", state.preemptions)
        return series.text()
