"""The names under which servers export their traffic.

Each field lists the names that versions of a server have used, the newest first; the first that a server exports is
read.  A counter has its name in the text format, with `_total`; a histogram has the name without `_bucket`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    finished: Names  # counter of requests
    counts: Literal["ends", "dispatches", "arrivals"] = "ends"  # when a request is counted
    is_engine: bool = False  # each replica of the target exports the series
    has_sizes: bool = True  # without histograms of tokens the series are incomplete
    failed: Names = ()  # counter of requests that ended with an error
    failed_labels: Mapping[str, tuple[str, ...]] | None = None  # series of `finished` that count failures instead
    running: Names = ()  # gauge of requests being served
    queued: Names = ()  # gauge of requests that wait
    input_tokens: Names = ()  # histogram
    output_tokens: Names = ()  # histogram
    ttft_s: Names = ()  # histogram
    tpot_s: Names = ()  # histogram
    seconds_per_unit: float = 1.0  # of the latencies
    kv_usage: Names = ()  # gauge, 0 to 1
    prefix_queries: Names = ()  # counter of prompt tokens that were searched for in the cache
    prefix_hits: Names = ()  # counter of found prompt tokens
    prefix_hit_rate: Names = ()  # gauge, where there are no counters
    checked_against: str  # the metrics page or the source that the names were compared with

    def histograms(self) -> tuple[Names, ...]:
        return (self.input_tokens, self.output_tokens, self.ttft_s, self.tpot_s)

    def series_names(self) -> Iterator[str]:
        """Every series name that a server may export, for one query of all."""
        histograms = {name for names in self.histograms() for name in names}
        for field in fields(self):
            names = getattr(self, field.name)
            if isinstance(names, tuple):
                for name in names:
                    yield from (f"{name}_bucket", f"{name}_sum") if name in histograms else (name,)


def _and_from_ray(*names: str) -> Names:
    """The names, and those under which Ray exports the metrics of engines in its replicas."""
    return (*names, *(f"ray_{name}" for name in names), *(f"ray_{name.replace(':', '_')}" for name in names))


PROFILES: Mapping[str, Profile] = {
    "vllm": Profile(
        is_engine=True,
        finished=_and_from_ray("vllm:request_success_total"),
        failed_labels={"finished_reason": ("abort", "error")},
        running=_and_from_ray("vllm:num_requests_running"),
        queued=_and_from_ray("vllm:num_requests_waiting"),
        input_tokens=_and_from_ray("vllm:request_prompt_tokens"),
        output_tokens=_and_from_ray("vllm:request_generation_tokens"),
        ttft_s=_and_from_ray("vllm:time_to_first_token_seconds"),
        tpot_s=_and_from_ray(
            "vllm:request_time_per_output_token_seconds",
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
        ),
        kv_usage=_and_from_ray("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prefix_queries=_and_from_ray("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        prefix_hits=_and_from_ray("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        checked_against="the families of a vLLM 0.26.0 server, and the sources of 0.9.2 to 0.24.0",
    ),
    "sglang": Profile(
        is_engine=True,
        has_sizes=False,
        finished=_and_from_ray("sglang:num_requests_total"),
        failed=_and_from_ray("sglang:num_aborted_requests_total"),
        running=_and_from_ray("sglang:num_running_reqs"),
        queued=_and_from_ray("sglang:num_queue_reqs"),
        input_tokens=_and_from_ray("sglang:prompt_tokens_histogram"),
        output_tokens=_and_from_ray("sglang:generation_tokens_histogram"),
        ttft_s=_and_from_ray("sglang:time_to_first_token_seconds"),
        tpot_s=_and_from_ray("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        kv_usage=_and_from_ray("sglang:token_usage"),
        prefix_hit_rate=_and_from_ray("sglang:cache_hit_rate"),
        checked_against="the page in SGLang's documentation, and the sources of 0.5.4 to 0.5.18; the histograms of "
        "tokens are in the sources only, and off without --collect-tokens-histogram",
    ),
    "tensorrt-llm": Profile(
        is_engine=True,
        finished=("trtllm_request_success_total",),
        failed=("trtllm_request_error_total",),
        running=("trtllm_num_requests_running",),
        queued=("trtllm_num_requests_waiting",),
        ttft_s=("trtllm_time_to_first_token_seconds",),
        tpot_s=("trtllm_time_per_output_token_seconds",),
        kv_usage=("trtllm_kv_cache_utilization",),
        prefix_hit_rate=("trtllm_kv_cache_hit_rate",),
        checked_against="the source of TensorRT-LLM in 2026; no captured page; it has no histogram of request sizes",
    ),
    "triton": Profile(
        is_engine=True,
        finished=("nv_inference_request_success",),
        failed=("nv_inference_request_failure",),
        queued=("nv_inference_pending_request_count",),
        checked_against="a page of a Triton server of 2023; it has no request sizes and no latency of tokens",
    ),
    "dynamo": Profile(
        finished=("dynamo_frontend_requests_total",),
        failed_labels={"status": ("error",)},
        running=("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests"),
        input_tokens=("dynamo_frontend_input_sequence_tokens",),
        output_tokens=("dynamo_frontend_output_sequence_tokens",),
        ttft_s=("dynamo_frontend_time_to_first_token_seconds",),
        tpot_s=("dynamo_frontend_inter_token_latency_seconds",),
        checked_against="the list of metrics in Dynamo's documentation of 1.5; no captured page of a frontend",
    ),
    "ray-serve": Profile(
        finished=("ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter"),
        failed=("ray_serve_deployment_error_counter_total", "ray_serve_deployment_error_counter"),
        running=("ray_serve_replica_processing_queries",),
        queued=("ray_serve_deployment_queued_queries",),
        checked_against="a page of a Ray 2.6 head, and Ray's documentation of 2026; it has no request sizes",
    ),
    "inference-gateway": Profile(
        finished=("llm_d_epp_request_total", "inference_objective_request_total", "inference_model_request_total"),
        counts="arrivals",
        failed=(
            "llm_d_epp_request_error_total",
            "inference_objective_request_error_total",
            "inference_model_request_error_total",
        ),
        running=(
            "llm_d_epp_request_running",
            "inference_objective_running_requests",
            "inference_model_running_requests",
        ),
        input_tokens=(
            "llm_d_epp_request_input_tokens",
            "inference_objective_input_tokens",
            "inference_model_input_tokens",
        ),
        output_tokens=(
            "llm_d_epp_request_output_tokens",
            "inference_objective_output_tokens",
            "inference_model_output_tokens",
        ),
        ttft_s=("llm_d_epp_request_ttft_seconds",),
        tpot_s=("llm_d_epp_request_streaming_tpot_seconds",),
        checked_against="the list of metrics of llm-d's router in 2026; no captured page",
    ),
    "router": Profile(
        finished=("fleetwright_router_dispatched_total", "ray_fleetwright_router_dispatched_total"),
        counts="dispatches",
        running=("fleetwright_router_in_flight", "ray_fleetwright_router_in_flight"),
        queued=("fleetwright_router_waiting", "ray_fleetwright_router_waiting"),
        ttft_s=("fleetwright_router_ttft_seconds", "ray_fleetwright_router_ttft_seconds"),
        tpot_s=("fleetwright_router_tpot_seconds", "ray_fleetwright_router_tpot_seconds"),
        checked_against="Fleetwright's own router",
    ),
}
