"""The replica options of one workload among the offers: GPU type x tensor parallelism, each estimated once.

Options that cannot hold a single bucket are left out.  Why is kept, for the error that names a bucket nobody can serve.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fleet.documents import Path
from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from fleet.offers import Offer
from fleet.sizes import Bucket, SizeBuckets
from fleet.slo import Slo
from planner.error_bands import band_for
from planner.performance import Estimate, Replica, highest_rate
from planner.problem import Supply
from planner.request import MAX_REPLICAS_PER_BUCKET, Workload, bucket_name
from planner.throughput import Provenance, Throughput

TENSOR_PARALLEL = (1, 2, 4, 8)

Cell = tuple[int, int]  # row and column of a bucket


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to run a replica, and what the answer says about it."""

    workload: int
    name: str
    gpu: GpuSpec
    gpus: int
    throughput: Throughput
    supply: Supply
    offer: Offer | None = None  # None: given outright, priced and stocked by the replica
    model: ModelArchitecture | None = None  # None: given outright, for a model that nobody needs to know

    @property
    def slots(self) -> int:
        """GPUs a replica takes out of its supply's units; a given option's unit is the replica."""
        return 1 if self.offer is None else self.gpus

    @property
    def power_w(self) -> float:
        """Nameplate power of one replica's GPUs."""
        return self.gpu.tdp_w * self.gpus


@dataclass(frozen=True, slots=True)
class Search:
    """One workload's way through the offers."""

    position: int
    workload: Workload
    model: ModelArchitecture
    slo: Slo
    estimates: dict[tuple[str, int], dict[Cell, Estimate]] = field(default_factory=dict)

    def run(self, offers: Iterable[tuple[Offer, GpuSpec]]) -> Iterator[Candidate]:
        """The options that can serve anything."""
        for offer, gpu in offers:
            supply = Supply(offer.id, offer.price_usd_per_h, slots=offer.gpus_per_instance, available=offer.limit)
            for degree in degrees(offer):
                table = self.estimates.get((gpu.name, degree))
                if table is None:
                    table = self.estimates[gpu.name, degree] = self._estimate(Replica(self.model, gpu, degree))
                if _serves_anything(table):
                    throughput = _throughput(table, self.workload.buckets, gpu=gpu, model=self.model)
                    name = f"{offer.id}/tp{degree}"
                    yield Candidate(self.position, name, gpu, degree, throughput, supply, offer, self.model)

    def flaws(self) -> Iterator[tuple[Path, str]]:
        """After `run`: what is asked for that nothing can serve, and per GPU type why its widest replica cannot."""
        for bucket in self.workload.buckets.buckets():
            cell = bucket.row, bucket.column
            least_rps = self.workload.planned_rps * bucket.share / MAX_REPLICAS_PER_BUCKET
            if least_rps > 0 and not any(table[cell].max_rps > least_rps for table in self.estimates.values()):
                at = ("workloads", self.position, "buckets", "share", *cell)
                yield at, f"no option can serve bucket {bucket_name(bucket)}: {self._reasons(cell)}"
        if self.workload.min_replicas and not any(map(_serves_anything, self.estimates.values())):
            yield ("workloads", self.position, "min_replicas"), "no option can serve any bucket, so only 0 is possible"

    def _estimate(self, replica: Replica) -> dict[Cell, Estimate]:
        return {(bucket.row, bucket.column): self._one(replica, bucket) for bucket in self.workload.buckets.buckets()}

    def _one(self, replica: Replica, bucket: Bucket) -> Estimate:
        input_tokens, output_tokens = bucket.edge
        return highest_rate(replica, self.slo, input_tokens=input_tokens, output_tokens=output_tokens)

    def _reasons(self, cell: Cell) -> str:
        widest = {gpu: table[cell].reason or "far too slow" for (gpu, _), table in sorted(self.estimates.items())}
        reasons = (f"{gpu}: {reason}" for gpu, reason in widest.items())
        return "; ".join(reasons) or "there are no offers on the markets asked for"


def degrees(offer: Offer) -> Iterator[int]:
    """Parallelism that divides an instance, so that replicas fill it without a remainder."""
    return (degree for degree in TENSOR_PARALLEL if offer.gpus_per_instance % degree == 0)


def _serves_anything(table: dict[Cell, Estimate]) -> bool:
    return any(estimate.max_rps for estimate in table.values())


def _throughput(
    table: dict[Cell, Estimate], buckets: SizeBuckets, *, gpu: GpuSpec, model: ModelArchitecture
) -> Throughput:
    band = band_for(gpu, model)
    rows, columns = range(len(buckets.input_tokens)), range(len(buckets.output_tokens))
    return Throughput(
        max_rps=tuple(tuple(table[row, column].max_rps for column in columns) for row in rows),
        provenance=Provenance.ROOFLINE,
        interval_90=None if band is None else (band.low, band.high),
        interval_note=f"no measured points of such a model on {gpu.name}" if band is None else band.note(gpu.name),
    )
