"""Prefill and decode on replicas of their own: what each side must hold, and which pairs are worth considering.

The prompt's cache is sent once, layer for layer, over the slower of the two replicas' host links (every GPU sends or
takes its part), so it adds to the time to the first token and bounds the rate on both sides.  How many of either side
run is the ILP's choice: a pair is a route of two legs.

Of the SLO the prefill side holds TTFT, the decode side TPOT.  An end-to-end limit is divided: the first token may take
its TTFT limit, or a quarter of the whole where there is none, and the rest is spread over the other tokens.  Means add
up exactly; for percentiles the division is on the safe side unless both sides tend to be slow together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from fleet.gpus import GpuSpec
from fleet.offers import Offer
from fleet.slo import MAX_LIMIT_MS, LatencyLimits, Slo
from planner.performance.config import KV_BYTES, ReplicaConfig, Role
from planner.performance.open_loop import LINK_REACHED
from planner.performance.rates import Estimate

FIRST_TOKEN_SHARE = 0.25  # of an end-to-end limit, where nothing is said about the first token
MAX_COST_RATIO = 1.1  # a pair may cost a tenth more per request than the best: whole numbers may still favour it
MAX_PAIRS = 48  # of one workload; beyond that they only repeat one another


@dataclass(frozen=True, slots=True)
class Leg:
    """One side of a pair, or an option that does both."""

    usd_per_h: float  # of one replica
    rates_rps: tuple[float, ...]
    limited: bool  # by stock or quota

    def usd_per_krequest(self, bucket: int) -> float:
        """Of a thousand requests at full use, fractions of replicas allowed."""
        rate_rps = self.rates_rps[bucket]
        return self.usd_per_h / (3.6 * rate_rps) if rate_rps > 0 else inf


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill and a decode option by position, with the rates of the prefill side when it feeds that decode side."""

    prefill: int
    decode: int
    rates_rps: tuple[float, ...]
    worst_rps: tuple[float, ...] = ()


def role_slo(slo: Slo, role: Role, *, output_tokens: int) -> Slo | None:
    """What a side holds for requests of so many output tokens; None where the limits leave it no time."""
    return prefill_slo(slo) if role == "prefill" else decode_slo(slo, output_tokens=output_tokens)


def prefill_slo(slo: Slo) -> Slo:
    """What the prefill side holds."""
    limits: dict[str, float] = {str(statistic): limit_ms for statistic, limit_ms in slo.ttft_ms.items()}
    for statistic, limit_ms in slo.e2e_ms.items():
        limits.setdefault(str(statistic), limit_ms * FIRST_TOKEN_SHARE)
    return Slo(ttft_ms=_rising(limits or {"mean": MAX_LIMIT_MS}))


def decode_slo(slo: Slo, *, output_tokens: int) -> Slo | None:
    """What the decode side holds; None where an end-to-end limit leaves it no time."""
    limits: dict[str, float] = {str(statistic): limit_ms for statistic, limit_ms in slo.tpot_ms.items()}
    first = dict(prefill_slo(slo).ttft_ms.items())
    for statistic, limit_ms in slo.e2e_ms.items():
        left_ms = (limit_ms - first[statistic]) / max(1, output_tokens - 1)
        if left_ms <= 0:
            return None
        limits[str(statistic)] = min(left_ms, limits.get(str(statistic), inf))
    return Slo(tpot_ms=_rising(limits or {"mean": MAX_LIMIT_MS}))


def kv_bytes(config: ReplicaConfig, input_tokens: int) -> float:
    """The cache of a prompt, as it is sent."""
    return config.model.kv_cache_bytes(tokens=input_tokens, kv_bytes=KV_BYTES[config.kv_precision])


def together(one: Offer, other: Offer) -> bool:
    """Whether two offers stand where their hosts reach each other at full rate: one region, one zone where stated."""
    if (one.provider, one.region) != (other.provider, other.region):
        return False
    return one.zone == other.zone or None in {one.zone, other.zone}


def link_gb_per_s(gpu: GpuSpec, gpus: int) -> float:
    """What a replica sends or takes: one host link per GPU."""
    return gpu.host_link_gb_per_s * gpus


def within_link(estimate: Estimate, config: ReplicaConfig, *, input_tokens: int) -> Estimate:
    """The rate at which the link carries the prompts' cache, where that is less."""
    sent_gb = kv_bytes(config, input_tokens) / 1e9
    link = link_gb_per_s(config.gpu, config.gpus)
    if config.kv_link_gb_per_s is not None:
        link = min(link, config.kv_link_gb_per_s * config.gpus)
    most_rps = LINK_REACHED * link / sent_gb if sent_gb else inf
    if estimate.max_rps <= most_rps:
        return estimate
    ends = estimate.interval_90
    capped = None if ends is None else (min(ends[0], most_rps), min(ends[1], most_rps))
    return Estimate(most_rps, interval_90=capped, binding="KV transfer")


def slower_link_gb_per_s(prefill: tuple[GpuSpec, int], decode: tuple[GpuSpec, int]) -> float | None:
    """Per prefill GPU, where the decode side is the slower one; None where it is not."""
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
    """Pairs that for some bucket cost at most a tenth more per request than the cheapest way without a limit.

    The ways are the pairs and the options that do both.  Of many, the closest to the cheapest are kept.  This thins out
    what would hardly change a plan; unlike `planner.options.dominance` it is no proof.
    """
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
    """How many times the cheapest; nothing is dearer than what has no unlimited way at all."""
    if cost == inf:
        return inf
    return 0.0 if least in {0.0, inf} and cost <= least else cost / least if least else inf


def _usd_per_krequest(pair: Pair, bucket: int, prefills: Sequence[Leg], decodes: Sequence[Leg]) -> float:
    prefill = Leg(prefills[pair.prefill].usd_per_h, pair.rates_rps, limited=False)
    return prefill.usd_per_krequest(bucket) + decodes[pair.decode].usd_per_krequest(bucket)


def _rising(limits: dict[str, float]) -> LatencyLimits:
    """Percentiles must not fall: a tighter limit on a higher one holds for the lower ones too."""
    tightest = inf
    for name in ("p99", "p95", "p90", "p50"):
        if name in limits:
            tightest = limits[name] = min(limits[name], tightest)
    return LatencyLimits.model_validate(limits)
