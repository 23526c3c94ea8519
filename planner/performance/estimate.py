"""What a replica carries at most, with how sure that is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """The highest rate for one request size; when it is 0, the reason."""

    max_rps: float
    reason: str | None = None
    interval_90: tuple[float, float] | None = None  # requests/s between which 90 % of measured rates lie
    binding: str | None = None  # the limit that holds the rate down: `p99 TTFT`, or `places` for cache and batch
