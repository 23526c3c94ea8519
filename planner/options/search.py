"""The replica options of one workload: the variants of each GPU type on each offer, without dominated ones.

Options that serve no bucket are left out; their reasons are kept for the error about a bucket that no option serves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from fleet.catalogues import folded
from fleet.documents import Path
from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from fleet.offers import Offer
from planner.options import disaggregation
from planner.options.dominance import CostFactors, undominated
from planner.options.enumeration import FULL_CLOCK, ConfigSpace, Shape
from planner.options.expert_imbalance import ExpertSpread
from planner.options.variants import Variant, VariantTable
from planner.performance.config import Role
from planner.problem import Supply
from planner.request import MAX_REPLICAS_PER_BUCKET, bucket_name
from planner.throughput import Throughput
from power.curves import ReplicaPower, replica_power

NO_OFFERS = "there are no offers on the selected markets"

Placed = tuple[Offer, GpuSpec]


@dataclass(frozen=True, slots=True)
class DecodeTarget:
    """A decode option that may follow a prefill option, and the rates of one prefill replica for it."""

    decode: str
    rates_rps: tuple[float, ...]
    worst_rps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica option with everything that the plan reports about it."""

    workload: int
    name: str
    gpu: GpuSpec | None  # None: given in the request and not in the catalogue
    gpus: int
    throughput: Throughput
    supply: Supply
    offer: Offer | None = None  # None: given in the request, priced and limited per replica
    model: ModelArchitecture | None = None  # None: given in the request
    shape: Shape | None = None  # None: given in the request
    worst_rps: tuple[float, ...] | None = None  # row by row; None: no known error
    decode_targets: tuple[DecodeTarget, ...] = ()  # of a prefill option
    spread: ExpertSpread | None = None  # None: experts are not distributed
    given_gpu: str = ""  # as a given option names it

    @property
    def gpu_name(self) -> str:
        """As the catalogue names the GPU, or else the request."""
        return self.given_gpu if self.gpu is None else self.gpu.name

    @property
    def data_sheet(self) -> GpuSpec:
        """The GPU of an option with predicted rates, which is always in the catalogue."""
        if self.gpu is None:
            raise AssertionError(f"{self.name} was given in the request")
        return self.gpu

    @property
    def folded_gpu_names(self) -> frozenset[str]:
        return frozenset({folded(self.given_gpu)} if self.gpu is None else self.gpu.folded_names)

    @property
    def role(self) -> Role:
        return "both" if self.shape is None else self.shape.role

    def scaled(self, factor: float) -> "Candidate":
        """The option with this factor on all its rates; those of pairs of prefill and decode too."""
        table = tuple(tuple(rate * factor for rate in row) for row in self.throughput.max_rps)
        note = f"{self.throughput.interval_note}; times {factor:g} by observed latencies"
        return replace(
            self,
            throughput=self.throughput.model_copy(update={"max_rps": table, "interval_note": note}),
            worst_rps=None if self.worst_rps is None else _times(self.worst_rps, factor),
            decode_targets=tuple(
                replace(target, rates_rps=_times(target.rates_rps, factor), worst_rps=_times(target.worst_rps, factor))
                for target in self.decode_targets
            ),
        )

    @property
    def slots(self) -> int:
        """GPUs of its supply's unit that a replica takes; the unit of a given option is the replica."""
        return 1 if self.offer is None else self.gpus

    @property
    def power(self) -> ReplicaPower | None:
        if self.gpu is None or self.gpu.tdp_w is None:
            return None
        return replica_power(self.gpu, gpus=self.gpus, level=FULL_CLOCK if self.shape is None else self.shape.clock)


def _times(rates_rps: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(rate * factor for rate in rates_rps)


@dataclass(frozen=True, slots=True)
class Search:
    position: int
    table: VariantTable
    config_space: Callable[[GpuSpec], ConfigSpace]
    cost_factors: CostFactors
    held: frozenset[str]  # names of running options, which are kept
    tried: dict[tuple[str, Shape], Variant] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)  # GPU types without any shape, with the reason

    def run(self, offers: Sequence[Placed]) -> list[Candidate]:
        whole = [candidate for placed in offers for candidate in self._offered(placed, "both")]
        if not self.table.workload.split:
            return whole
        return [*whole, *self._paired(offers, whole)]

    def violations(self) -> Iterator[tuple[Path, str]]:
        """After `run`: demand that no option serves, with the reason per GPU type."""
        workload = self.table.workload
        for number, bucket in enumerate(self.table.buckets):
            min_rps = workload.planned_rps * bucket.share / MAX_REPLICAS_PER_BUCKET
            if min_rps > 0 and not self._serves(number):
                at = ("workloads", self.position, "buckets", "share", bucket.row, bucket.column)
                yield at, f"no option can serve bucket {bucket_name(bucket)}: {self._reasons(number)}"
        if workload.min_replicas and not any(variant.serves_anything for variant in self.tried.values()):
            yield ("workloads", self.position, "min_replicas"), "no option can serve any bucket, so only 0 is possible"

    def _offered(self, placed: Placed, role: Role) -> Iterator[Candidate]:
        offer, gpu = placed
        for variant in self._variants(offer, gpu, role):
            yield self._candidate(offer, variant)

    def _variants(self, offer: Offer, gpu: GpuSpec, role: Role) -> list[Variant]:
        if gpu.tdp_w is None or gpu.pcie_gb_per_s is None:
            self.unable[gpu.name] = "no source states its power and host link (tdp_w, pcie_gb_per_s)"
            return []
        config_space = replace(self.config_space(gpu), roles=(role,))
        found = self.table.on(gpu, gpus_per_instance=offer.gpus_per_instance, config_space=config_space)
        self.tried.update({(gpu.name, variant.shape): variant for variant in found})
        if not found:
            self.unable[gpu.name] = f"computes in none of {', '.join(config_space.precisions_on(gpu))}"
        return undominated(
            (variant for variant in found if variant.serves_anything),
            cost_factors=self.cost_factors,
            pinned=lambda variant: _option_name(offer, variant) in self.held,
        )

    def _candidate(self, offer: Offer, variant: Variant) -> Candidate:
        supply = Supply(offer.id, offer.price_usd_per_h, slots=offer.gpus_per_instance, available=offer.limit)
        return Candidate(
            workload=self.position,
            name=_option_name(offer, variant),
            gpu=variant.gpu,
            gpus=variant.gpus,
            throughput=variant.throughput,
            supply=supply,
            offer=offer,
            model=self.table.model,
            shape=variant.shape,
            worst_rps=variant.worst_rps,
            spread=variant.spread,
        )

    def _paired(self, offers: Sequence[Placed], whole: Sequence[Candidate]) -> Iterator[Candidate]:
        prefills = [candidate for placed in offers for candidate in self._offered(placed, "prefill")]
        decodes = [candidate for placed in offers for candidate in self._offered(placed, "decode")]
        every = list(self._pairs(prefills, decodes))
        pairs = disaggregation.cheap_pairs(
            every,
            prefills=list(map(self._leg, prefills)),
            decodes=list(map(self._leg, decodes)),
            others=list(map(self._leg, whole)),
            buckets=[number for number, bucket in enumerate(self.table.buckets) if bucket.share > 0],
        )
        running = [pair for pair in every if {prefills[pair.prefill].name, decodes[pair.decode].name} <= self.held]
        pairs += [pair for pair in running if pair not in pairs]
        for p, prefill in enumerate(prefills):
            decode_targets = [
                DecodeTarget(decodes[pair.decode].name, pair.rates_rps, pair.worst_rps)
                for pair in pairs
                if pair.prefill == p
            ]
            if decode_targets:
                yield replace(prefill, decode_targets=tuple(decode_targets))
        used = {pair.decode for pair in pairs}
        yield from (decode for d, decode in enumerate(decodes) if d in used)

    def _pairs(self, prefills: Sequence[Candidate], decodes: Sequence[Candidate]) -> Iterator[disaggregation.Pair]:
        for (p, prefill), (d, decode) in product(enumerate(prefills), enumerate(decodes)):
            if _may_pair(prefill, decode):
                link = disaggregation.slower_link_gb_per_s(
                    (prefill.data_sheet, prefill.gpus), (decode.data_sheet, decode.gpus)
                )
                fed = self.table.variant(prefill.data_sheet, _shape(prefill), kv_link_gb_per_s=link)
                if any(ours and theirs for ours, theirs in zip(fed.rates_rps, self._rates(decode), strict=True)):
                    yield disaggregation.Pair(p, d, fed.rates_rps, fed.worst_rps)

    def _rates(self, candidate: Candidate) -> tuple[float, ...]:
        return self.table.variant(candidate.data_sheet, _shape(candidate)).rates_rps

    def _leg(self, candidate: Candidate) -> disaggregation.Leg:
        supply = candidate.supply
        return disaggregation.Leg(
            usd_per_h=supply.price_usd_per_h * candidate.gpus / supply.slots,
            rates_rps=self._rates(candidate),
            limited=supply.available is not None,
        )

    def _serves(self, bucket: int) -> bool:
        served = {variant.shape.role for variant in self.tried.values() if variant.rates_rps[bucket] > 0}
        return "both" in served or {"prefill", "decode"} <= served

    def _reasons(self, bucket: int) -> str:
        reasons = dict(self.unable)
        for (gpu, _), variant in sorted(self.tried.items(), key=lambda entry: (entry[0][0], entry[1].gpus)):
            reason = variant.reasons[bucket] or "far too slow"
            if variant.shape.role == "both" or gpu not in reasons:
                reasons[gpu] = reason
        return "; ".join(f"{gpu}: {reason}" for gpu, reason in sorted(reasons.items())) or NO_OFFERS


def _option_name(offer: Offer, variant: Variant) -> str:
    return f"{offer.id}/{variant.name}"


def _may_pair(prefill: Candidate, decode: Candidate) -> bool:
    """Whether both keep the cache in one precision and are in one place."""
    if prefill.offer is None or decode.offer is None or not disaggregation.together(prefill.offer, decode.offer):
        return False
    return _shape(prefill).kv_precision == _shape(decode).kv_precision


def _shape(candidate: Candidate) -> Shape:
    if candidate.shape is None:
        raise AssertionError(f"{candidate.name} was given in the request")
    return candidate.shape


def known_power(candidate: Candidate) -> ReplicaPower:
    """The power of a replica in a power domain; the builder has required its data sheet."""
    if candidate.power is None:
        raise AssertionError(f"{candidate.name} has no data sheet")
    return candidate.power
