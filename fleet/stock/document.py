"""The stock document: GPUs by type, region, zone, pool and size of node."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError, Violation

MAX_GPUS = 10_000_000
MAX_ENTRIES = 5_000
MAX_GPUS_PER_NODE = 1_024

StockName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Gpus = Annotated[int, Field(ge=0, le=MAX_GPUS)]


class Unavailable(StrEnum):
    """Why a plan may not use a GPU.  A GPU with several reasons counts under the first of this order."""

    CORDONED = "cordoned"
    NOT_READY = "not_ready"
    UNHEALTHY_NODE = "unhealthy_node"  # a taint or condition of a health monitor or of a node autoscaler
    UNHEALTHY_GPU = "unhealthy_gpu"  # the device plugin or driver does not offer the GPU
    FOREIGN_POD = "foreign_pod"  # a pod that belongs to no target
    QUOTA = "quota"  # beyond the quota of the queues


class StockRef(Frozen):
    """Which stock fills in the instances of an offer."""

    name: StockName
    pool: Label | None = Field(default=None, description="Only GPUs of this pool; absent: of every pool.")


class FreeNodes(Frozen):
    """Nodes with the same number of available GPUs."""

    gpus: int = Field(ge=1, le=MAX_GPUS_PER_NODE, description="Available GPUs on each of these nodes.")
    nodes: int = Field(ge=1, le=MAX_GPUS)


class StockEntry(Frozen):
    """GPUs of one type, in one place and pool, on nodes of one size."""

    gpu: Label = Field(description="As the GPU catalogue names it; else the label of the node.")
    region: Label | None = None
    zone: Label | None = None
    pool: Label | None = None
    gpus_per_node: int = Field(ge=1, le=MAX_GPUS_PER_NODE)
    total: Gpus
    available: Gpus
    unavailable: Mapping[Unavailable, Gpus] = Field(default_factory=dict)
    free: tuple[FreeNodes, ...] = Field(default=(), max_length=1024, description="Nodes by their available GPUs.")

    def instances(self, gpus: int) -> int:
        """Instances of so many GPUs: each on one node, or over whole free nodes where no node is large enough."""
        if gpus <= self.gpus_per_node:
            return sum(each.nodes * (each.gpus // gpus) for each in self.free)
        whole = sum(each.nodes for each in self.free if each.gpus == self.gpus_per_node)
        return whole // -(-gpus // self.gpus_per_node)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if (known := self.available + sum(self.unavailable.values())) != self.total:
            yield ("total",), f"expected {known}: `available` plus all of `unavailable`"
        if (free := sum(each.gpus * each.nodes for each in self.free)) != self.available:
            yield ("available",), f"expected {free}: the GPUs of `free`"
        for position, each in enumerate(self.free):
            if each.gpus > self.gpus_per_node:
                yield ("free", position, "gpus"), f"allowed: at most gpus_per_node ({self.gpus_per_node})"


class Stock(Frozen):
    """The GPUs of one cluster at one time."""

    observed_at: AwareDatetime
    stale_after_s: float = Field(gt=0, le=86_400, description="A plan on an older observation is not applied.")
    source: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    entries: tuple[StockEntry, ...] = Field(default=(), max_length=MAX_ENTRIES)

    def age_s(self, now: datetime) -> float:
        """Seconds since the observation; 0 for one in the future, as by another clock."""
        return max(0.0, (now - self.observed_at).total_seconds())

    def is_stale(self, now: datetime) -> bool:
        """Whether the observation is too old, or so far in the future that its age is unknown."""
        return self.age_s(now) > self.stale_after_s or (self.observed_at - now).total_seconds() > self.stale_after_s

    def matching(self, *, gpu: str, region: str, zone: str | None, pool: str | None) -> tuple[StockEntry, ...]:
        """The entries that an offer draws on.  A property that an entry does not state matches every offer."""
        return tuple(
            entry
            for entry in self.entries
            if entry.gpu == gpu
            and entry.region in {None, region}
            and (zone is None or entry.zone in {None, zone})
            and (pool is None or entry.pool == pool)
        )

    @model_validator(mode="after")
    def _no_entry_twice(self) -> Self:
        RuleError.raise_for(self._listed_twice())
        return self

    def _listed_twice(self) -> Iterator[Violation]:
        first: dict[tuple[object, ...], int] = {}
        for position, entry in enumerate(self.entries):
            key = (entry.gpu, entry.region, entry.zone, entry.pool, entry.gpus_per_node)
            if (earlier := first.setdefault(key, position)) != position:
                yield ("entries", position), f"is the same type, place, pool and size as entries[{earlier}]"
