"""What capping did to requests: latency and throughput against the same requests uncapped, by priority.

    impact(q) = quantile_q(latency, capped) / quantile_q(latency, uncapped) - 1        0.01 is 1 % longer

over the requests that the uncapped run finished.  One that the capped run did not finish counts as longer than any
that it did: where more than 1 - q of them are unfinished the impact is infinite.  Latency runs from arrival to the last
token.  Quantiles are ranks of the measured values, never between two of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from power.arrays import Floats
from power.controls import Priority

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Impact:
    p50: float
    p99: float
    throughput: float  # requests finished over those of the uncapped run, minus 1
    requests: int  # that the uncapped run finished
    unfinished: int  # of these, by the capped run


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of the latency impact on one priority."""

    p50: float
    p99: float

    def holds(self, impact: Impact) -> bool:
        return impact.p50 <= self.p50 and impact.p99 <= self.p99


# POLCA's (arXiv 2308.12908; all but the first recalled rather than re-read).
POLCA_SLO: Mapping[Priority, Limit] = {Priority.HIGH: Limit(0.01, 0.05), Priority.LOW: Limit(0.05, 0.50)}


def latency_impact(*, uncapped_s: Floats, capped_s: Floats, chosen: Flags | None = None) -> Impact:
    """Return the impact on the chosen requests, or all.  Latencies have the same order; NaN or infinite: unfinished."""
    if len(uncapped_s) != len(capped_s):
        raise RuleError([(("capped_s",), f"must have the same {len(uncapped_s)} requests, got {len(capped_s)}")])
    here = np.isfinite(uncapped_s) if chosen is None else np.isfinite(uncapped_s) & chosen
    before, after = uncapped_s[here], np.where(np.isfinite(capped_s[here]), capped_s[here], inf)
    requests = len(before)
    finished = int(np.count_nonzero(np.isfinite(capped_s if chosen is None else capped_s[chosen])))
    unfinished = requests - int(np.count_nonzero(np.isfinite(after)))
    if not requests:
        return Impact(0.0, 0.0, 0.0, 0, 0)
    p50, p99 = (_ranked(after, share) / _ranked(before, share) - 1 for share in (0.50, 0.99))
    return Impact(p50, p99, finished / requests - 1, requests, unfinished)


def slo_holds(impacts: Mapping[Priority, Impact], slo: Mapping[Priority, Limit] = POLCA_SLO) -> bool:
    return all(limit.holds(impacts[priority]) for priority, limit in slo.items() if priority in impacts)


def _ranked(values: Floats, share: float) -> float:
    at = max(0, int(np.ceil(share * len(values))) - 1)
    return float(np.partition(values, at)[at])
