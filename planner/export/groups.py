"""The replica groups of a plan: alike replicas with a name, their settings, GPUs, price and routing weights.

A group is one allocation of the plan.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fleet.documents import RuleError, Violation
from fleet.gpus import GpuCatalogue, GpuSpec
from planner.engine_flags import ReplicaSettings
from planner.performance.config import Role
from planner.request import PlanRequest, Workload, bucket_names
from planner.result import Allocation, Plan

MAX_NAME: Final = 45  # of 63 characters of a DNS label; operators append suffixes for pods and services
SPLIT_SUFFIX: Final = "-pd"  # of objects for the prefill and decode replicas of a workload
ROUTE_JOIN: Final = " + "  # between the prefill and the decode option of a route
RESOURCES: Final[Mapping[str, str]] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Alike replicas of one workload."""

    name: str  # a DNS label, unique in the export
    workload: str
    option: str
    gpu: GpuSpec
    count: int
    gpus_per_replica: int
    nodes_per_replica: int
    clock: float
    usd_per_h: float | None  # of one replica; None if the plan does not state it
    settings: ReplicaSettings
    weights: Mapping[str, float]  # bucket -> share of its requests
    share: float  # of the workload's requests; the mean of the buckets if the shares of these are not known

    @property
    def role(self) -> Role:
        return self.settings.role

    @property
    def gpus_per_node(self) -> int:
        return self.gpus_per_replica // self.nodes_per_replica

    @property
    def resource(self) -> str:
        """The name under which Kubernetes counts these GPUs."""
        return RESOURCES[self.gpu.vendor]


@dataclass(frozen=True, slots=True)
class WorkloadGroups:
    """The groups of one workload."""

    name: str  # a DNS label, unique in the export
    workload: str
    whole: tuple[ReplicaGroup, ...]  # serve whole requests
    prefill: tuple[ReplicaGroup, ...]
    decode: tuple[ReplicaGroup, ...]
    routing: Mapping[str, Mapping[str, float]]  # of the plan: bucket -> route -> weight

    @property
    def groups(self) -> tuple[ReplicaGroup, ...]:
        return (*self.whole, *self.prefill, *self.decode)

    @property
    def split_name(self) -> str:
        """Of an object for its prefill and decode replicas."""
        return f"{self.name}{SPLIT_SUFFIX}"

    @property
    def checkpoint(self) -> str:
        return self.groups[0].settings.checkpoint


def workload_groups(
    plan: Plan, *, request: PlanRequest | None, gpus: GpuCatalogue, checkpoints: Mapping[str, str]
) -> tuple[WorkloadGroups, ...]:
    """The groups of every workload of a plan.  `checkpoints` names other weights for some workloads.

    RuleError names the allocations that cannot be exported.
    """
    RuleError.raise_for(_violations(plan, gpus=gpus, checkpoints=checkpoints))
    workloads = tuple(dict.fromkeys(entry.workload for entry in plan.allocation))
    taken: set[str] = set()
    labels = _labels(workloads, taken)
    shares = {} if request is None else {each.name: _bucket_shares(each) for each in request.workloads}

    def groups_of(workload: str) -> WorkloadGroups:
        routing = plan.routing.get(workload, {})
        buckets = shares.get(workload, dict.fromkeys(routing, 1 / max(1, len(routing))))
        groups = [
            _group(
                plan,
                entry,
                name=_unused(_name(labels[workload], entry), taken),
                gpu=gpus.get(entry.gpu),
                checkpoint=checkpoints.get(workload),
                buckets=buckets,
            )
            for entry in plan.allocation
            if entry.workload == workload
        ]
        return WorkloadGroups(
            name=labels[workload],
            workload=workload,
            whole=tuple(group for group in groups if group.role == "both"),
            prefill=tuple(group for group in groups if group.role == "prefill"),
            decode=tuple(group for group in groups if group.role == "decode"),
            routing=routing,
        )

    return tuple(map(groups_of, workloads))


def dns_label(text: str) -> str:
    """The text as a DNS label: lower case letters, digits and hyphens, beginning with a letter."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME].strip("-") or "x"
    return label if label[0].isalpha() else f"x-{label}"[:MAX_NAME].strip("-")


def _group(
    plan: Plan, entry: Allocation, *, name: str, gpu: GpuSpec, checkpoint: str | None, buckets: Mapping[str, float]
) -> ReplicaGroup:
    if entry.settings is None:
        raise AssertionError(f"{entry.option} was checked to have settings")
    settings = entry.settings if checkpoint is None else entry.settings.model_copy(update={"checkpoint": checkpoint})
    hire = next((hire for hire in plan.hires if hire.offer is not None and hire.offer == entry.offer), None)
    on_instance = entry.gpus_per_replica if hire is None else hire.gpus_per_unit or entry.gpus_per_replica
    # Whole instances are hired, so a GPU's price is that of its instance over the instance's GPUs.
    price = None if hire is None else hire.price_usd_per_h * entry.gpus_per_replica / on_instance
    weights = _weights_of(plan.routing.get(entry.workload, {}), entry.option)
    return ReplicaGroup(
        name=name,
        workload=entry.workload,
        option=entry.option,
        gpu=gpu,
        count=entry.count,
        gpus_per_replica=entry.gpus_per_replica,
        nodes_per_replica=max(1, entry.gpus_per_replica // on_instance),
        clock=1.0 if entry.clock is None else entry.clock,
        usd_per_h=None if price is None else round(price, 6),
        settings=settings,
        weights=weights,
        share=min(1.0, round(sum(weight * buckets.get(bucket, 0.0) for bucket, weight in weights.items()), 6)),
    )


def _bucket_shares(workload: Workload) -> dict[str, float]:
    return dict(zip(bucket_names(workload), (bucket.share for bucket in workload.buckets.buckets()), strict=True))


def _name(label: str, entry: Allocation) -> str:
    """Workload, GPU type and option; the offer is left out, because its id may be long."""
    option = entry.option if entry.offer is None else entry.option.removeprefix(f"{entry.offer}/")
    return f"{label}-{entry.gpu}-{option}"


def _weights_of(routing: Mapping[str, Mapping[str, float]], option: str) -> dict[str, float]:
    """The share of each bucket on the routes that use this option or are this route."""
    found: dict[str, float] = {}
    for bucket, weights in routing.items():
        share = sum(weight for route, weight in weights.items() if option in {route, *route.split(ROUTE_JOIN)})
        if share > 0:
            found[bucket] = round(share, 6)
    return found


def _labels(names: tuple[str, ...], taken: set[str]) -> dict[str, str]:
    """The label of each workload; with its suffix for prefill and decode it names further objects."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = _unused(name, taken, suffixes=("", SPLIT_SUFFIX))
    return found


def _unused(text: str, taken: set[str], *, suffixes: tuple[str, ...] = ("",)) -> str:
    """A DNS label for the text that is not in `taken` with any of the suffixes; all of these join it."""
    label = dns_label(text)
    candidates = (label, *(f"{label[: MAX_NAME - 4].strip('-')}-{number}" for number in range(2, len(taken) + 3)))
    chosen = next(each for each in candidates if taken.isdisjoint(f"{each}{suffix}" for suffix in suffixes))
    taken |= {f"{chosen}{suffix}" for suffix in suffixes}
    return chosen


def _violations(plan: Plan, *, gpus: GpuCatalogue, checkpoints: Mapping[str, str]) -> Iterator[Violation]:
    if not plan.status.has_mix:
        yield ("status",), f"is {plan.status}: there is no mix to export"
        return
    if not plan.allocation:
        yield ("allocation",), "is empty: the plan runs no replicas"
    workloads = {entry.workload for entry in plan.allocation}
    for name in sorted(checkpoints.keys() - workloads):
        yield ("weights", name), f"is no workload of the plan; it has: {', '.join(sorted(workloads))}"
    for position, entry in enumerate(plan.allocation):
        at = ("allocation", position)
        if entry.settings is None:
            yield (
                (*at, "settings"),
                (
                    f"are not known for option {entry.option}: the request gave this option, or an older release "
                    "planned it; plan with a model and offers"
                ),
            )
        elif (vendor := gpus.get(entry.gpu).vendor) not in RESOURCES:
            yield (*at, "gpu"), f"is {entry.gpu} of {vendor}, expected one of {', '.join(RESOURCES)}"
