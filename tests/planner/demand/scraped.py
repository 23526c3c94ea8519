"""The samples that a scraper would have of servers that export vLLM's metrics, computed from a list of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.demand.density import Floats
from planner.demand.series import Series

TOKEN_EDGES = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
SECONDS_EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Served:
    arrived_s: float
    ended_s: float
    input_tokens: int = 100
    output_tokens: int = 20
    ttft_s: float = 0.2
    tpot_s: float = 0.03
    finished: str = "stop"


def scraped(
    requests: Sequence[Served],
    *,
    labels: Mapping[str, str],
    until_s: float,
    since_s: float = 0.0,
    every_s: float = 5.0,
    restarted_s: float | None = None,
) -> list[Series]:
    """`restarted_s`: the server's counters begin again at 0."""
    times = since_s + every_s * np.arange(int((until_s - since_s) / every_s) + 1)
    begun_s = np.where(times >= restarted_s, restarted_s, -np.inf) if restarted_s is not None else -np.inf
    ends = np.sort([each.ended_s for each in requests])
    arrivals = np.sort([each.arrived_s for each in requests])
    ordered = sorted(requests, key=lambda each: each.ended_s)

    def counter(weights: Sequence[float] | Floats) -> Floats:
        total = np.concatenate(([0.0], np.cumsum(weights)))
        return total[np.searchsorted(ends, times, "right")] - total[np.searchsorted(ends, begun_s, "right")]

    def series(name: str, values: Floats, **more: str) -> Series:
        return Series(name, {**labels, **more}, tuple(zip(times.tolist(), values.tolist(), strict=True)))

    running = np.searchsorted(arrivals, times, "right") - np.searchsorted(ends, times, "right")
    found = [
        series("vllm:num_requests_running", running.astype(float)),
        series("vllm:num_requests_waiting", np.zeros(len(times))),
    ]
    for reason in ("stop", "length", "abort"):
        flags = [float(each.finished == reason) for each in ordered]
        found.append(series("vllm:request_success_total", counter(flags), finished_reason=reason))
    for name, field, edges in (
        ("vllm:request_prompt_tokens", "input_tokens", TOKEN_EDGES),
        ("vllm:request_generation_tokens", "output_tokens", TOKEN_EDGES),
        ("vllm:time_to_first_token_seconds", "ttft_s", SECONDS_EDGES),
        ("vllm:request_time_per_output_token_seconds", "tpot_s", SECONDS_EDGES),
    ):
        values = np.array([getattr(each, field) for each in ordered], dtype=float)
        found += [
            series(f"{name}_bucket", counter(np.asarray(values <= edge, dtype=float)), le=le)
            for edge, le in [*((edge, str(edge)) for edge in edges), (inf, "+Inf")]
        ]
        found.append(series(f"{name}_sum", counter(values)))
    return found
