"""Prefill and decode on separate replicas: the SLO of each side, and the pairs worth considering.

The prompt's cache crosses once, over the slower of the two replicas' host links (each GPU sends or receives its part).
A pair is a route of two legs, so the MIP chooses the ratio.  docs/explanation/planner/options.md divides the SLO
between the sides: means add up exactly; for percentiles the division is conservative unless both sides are slow at the
same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from fleet.gpus import GpuSpec
from fleet.offers import Offer
from fleet.slo import MAX_LIMIT_MS, LatencyLimits, Slo
from planner.performance.config import KV_BYTES, ReplicaConfig
from planner.performance.open_loop import LINK_REACHED
from planner.performance.rates import Estimate

FIRST_TOKEN_SHARE = 0.25  # of an end-to-end limit, without a TTFT limit
MAX_COST_RATIO = 1.1  # of a pair's cost per request over the best; above 1 because rounding may favour a dearer pair
MAX_PAIRS = 48  # of one workload; more are nearly equal to one another


@dataclass(frozen=True, slots=True)
class Leg:
    """One side of a pair, or an option for whole requests."""

    usd_per_h: float  # of one replica
    rates_rps: tuple[float, ...]
    limited: bool  # by stock or quota

    def usd_per_krequest(self, bucket: int) -> float:
        """$ per thousand requests at full use, with fractional replicas."""
        rate_rps = self.rates_rps[bucket]
        return self.usd_per_h / (3.6 * rate_rps) if rate_rps > 0 else inf


@dataclass(frozen=True, slots=True)
class Pair:
    """Indices of a prefill and a decode option, with the prefill side's rates for this decode side."""

    prefill: int
    decode: int
    rates_rps: tuple[float, ...]
    worst_rps: tuple[float, ...] = ()


def prefill_slo(slo: Slo) -> Slo:
    limits: dict[str, float] = {str(statistic): limit_ms for statistic, limit_ms in slo.ttft_ms.items()}
    for statistic, limit_ms in slo.e2e_ms.items():
        limits.setdefault(str(statistic), limit_ms * FIRST_TOKEN_SHARE)
    return Slo(ttft_ms=_rising(limits or {"mean": MAX_LIMIT_MS}))


def decode_slo(slo: Slo, *, output_tokens: int) -> Slo | None:
    """The SLO of the decode side; None if an end-to-end limit leaves it no time."""
    limits: dict[str, float] = {str(statistic): limit_ms for statistic, limit_ms in slo.tpot_ms.items()}
    first = dict(prefill_slo(slo).ttft_ms.items())
    for statistic, limit_ms in slo.e2e_ms.items():
        left_ms = (limit_ms - first[statistic]) / max(1, output_tokens - 1)
        if left_ms <= 0:
            return None
        limits[str(statistic)] = min(left_ms, limits.get(str(statistic), inf))
    return Slo(tpot_ms=_rising(limits or {"mean": MAX_LIMIT_MS}))


def kv_bytes(config: ReplicaConfig, input_tokens: int) -> float:
    return config.model.kv_cache_bytes(tokens=input_tokens, kv_bytes=KV_BYTES[config.kv_precision])


def together(one: Offer, other: Offer) -> bool:
    """Whether the hosts of two offers have a fast link: one region, and one zone if both state one."""
    if (one.provider, one.region) != (other.provider, other.region):
        return False
    return one.zone == other.zone or None in {one.zone, other.zone}


def link_gb_per_s(gpu: GpuSpec, gpus: int) -> float:
    """Of a replica: one host link per GPU."""
    return gpu.host_link_gb_per_s * gpus


def within_link(estimate: Estimate, config: ReplicaConfig, *, input_tokens: int) -> Estimate:
    """The estimate, limited to the rate at which the link carries the prompts' cache."""
    sent_gb = kv_bytes(config, input_tokens) / 1e9
    link = link_gb_per_s(config.gpu, config.gpus)
    if config.kv_link_gb_per_s is not None:
        link = min(link, config.kv_link_gb_per_s * config.gpus)
    max_rps = LINK_REACHED * link / sent_gb if sent_gb else inf
    if estimate.max_rps <= max_rps:
        return estimate
    ends = estimate.interval_90
    capped = None if ends is None else (min(ends[0], max_rps), min(ends[1], max_rps))
    return Estimate(max_rps, interval_90=capped)


def slower_link_gb_per_s(prefill: tuple[GpuSpec, int], decode: tuple[GpuSpec, int]) -> float | None:
    """Per prefill GPU, if the decode side is slower; else None."""
    sends, takes = link_gb_per_s(*prefill), link_gb_per_s(*decode)
    return None if takes >= sends else takes / prefill[1]


def cheap_pairs(
    pairs: Sequence[Pair],
    *,
    prefills: Sequence[Leg],
    decodes: Sequence[Leg],
    others: Sequence[Leg],
    buckets: Sequence[int],
) -> list[Pair]:
    """Pairs that for some bucket cost at most `MAX_COST_RATIO` times the cheapest unlimited way per request."""
    costs = [[_usd_per_krequest(pair, b, prefills, decodes) for b in buckets] for pair in pairs]
    free = [not (prefills[pair.prefill].limited or decodes[pair.decode].limited) for pair in pairs]
    unlimited = [row for row, each in zip(costs, free, strict=True) if each]
    unlimited += [[option.usd_per_krequest(b) for b in buckets] for option in others if not option.limited]
    least = [min((row[position] for row in unlimited), default=inf) for position in range(len(buckets))]
    excess = [min(map(_excess, row, least), default=inf) for row in costs]
    kept = sorted(
        (p for p in range(len(pairs)) if excess[p] <= MAX_COST_RATIO), key=lambda p: (excess[p], min(costs[p]))
    )
    return [pairs[p] for p in sorted(kept[:MAX_PAIRS])]


def _excess(cost: float, least: float) -> float:
    if cost == inf:
        return inf
    return 0.0 if least in {0.0, inf} and cost <= least else cost / least if least else inf


def _usd_per_krequest(pair: Pair, bucket: int, prefills: Sequence[Leg], decodes: Sequence[Leg]) -> float:
    prefill = Leg(prefills[pair.prefill].usd_per_h, pair.rates_rps, limited=False)
    return prefill.usd_per_krequest(bucket) + decodes[pair.decode].usd_per_krequest(bucket)


def _rising(limits: dict[str, float]) -> LatencyLimits:
    """Percentiles must not fall: a tighter limit on a higher percentile also limits the lower ones."""
    tightest = inf
    for name in ("p99", "p95", "p90", "p50"):
        if name in limits:
            tightest = limits[name] = min(limits[name], tightest)
    return LatencyLimits.model_validate(limits)
