"""Request sizes estimated from vLLM's metrics page against the truth of public traces.

`scrapes` reads the increases of scrapes every 15 s of 1 or 4 replicas, which requests reach at random, as a planning
loop does; `one page` has the counts and the sum of the whole trace alone.  The smoothing was chosen on Azure code,
kv-cache-tester and ShareGPT; those rows are marked `fit`.  The rows `report` were evaluated twice while the method was
made: once for counts alone, once with the sums of scrapes.
"""

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime

import numpy as np

from bench.demand_series import FIT, REPORT, Floats
from bench.harness import Row, text
from planner.demand.density import estimate_density

EDGES = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))  # vLLM's, up to 500,000 tokens
SCRAPE_S = 15.0
REPLICAS = (1, 4)
TRACES = {
    "Azure code": FIT,
    "kv-cache-tester": FIT,
    "ShareGPT": FIT,
    "Azure conversation": REPORT,
    "Mooncake conversation": REPORT,
}


def run() -> list[Row]:
    return [row for trace, part in TRACES.items() for row in _rows(trace, part)]


def _rows(trace: str, part: str) -> Iterator[Row]:
    found = _requests(trace)
    if found is None:
        return
    at_s, inputs, outputs = found
    for side, sizes in (("input", inputs), ("output", outputs)):
        for replicas in (0, *REPLICAS):
            counts, sums = _increases(at_s, sizes, replicas=replicas)
            density = estimate_density(EDGES, counts=counts, sums=sums, floor=0.5)
            if density is None:
                continue
            yield {
                "trace": trace,
                "part": part,
                "tokens": side,
                "read": f"scrapes of {replicas}" if replicas else "one page",
                "mean_error_percent": round(100 * (density.mean / float(sizes.mean()) - 1), 6),
                **{
                    f"p{round(100 * p)}_error_percent": 100 * (density.quantile(p) / float(np.quantile(sizes, p)) - 1)
                    for p in (0.5, 0.9, 0.99)
                },
            }


def _increases(at_s: Floats, sizes: Floats, *, replicas: int) -> tuple[Floats, Floats]:
    """Requests per bucket and tokens of each scrape of each replica; 0 replicas: of all requests at once."""
    row = np.zeros(len(sizes), dtype=np.int64)
    if replicas:
        replica = np.random.default_rng(0).integers(replicas, size=len(sizes))
        _, row = np.unique((at_s // SCRAPE_S).astype(np.int64) * replicas + replica, return_inverse=True)
    counts: Floats = np.zeros((int(row.max()) + 1, len(EDGES) + 1))
    np.add.at(counts, (row, np.searchsorted(EDGES, sizes)), 1)
    return counts, np.bincount(row, sizes).astype(float)


def _requests(trace: str) -> tuple[Floats, Floats, Floats] | None:
    if trace.startswith("Azure"):
        table = text("power", f"AzureLLMInferenceTrace_{'code' if 'code' in trace else 'conv'}_2023.csv.gz")
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp(), row["ContextTokens"], row["GeneratedTokens"])
            for row in csv.DictReader(io.StringIO(table or ""))
        ]
    else:
        file = {"kv-cache-tester": "kvct_fit", "ShareGPT": "lss_sharegpt300_llama"}.get(trace, "mooncake_conversation")
        lines = (text("serving", f"traces/{file}.jsonl.gz") or "").splitlines()
        rows = [(line["time_s"], line["input_tokens"], line["output_tokens"]) for line in map(json.loads, lines)]
    if not rows:
        return None
    at_s, inputs, outputs = np.array(rows, dtype=float).T
    return at_s - at_s[0], inputs, outputs
