"""The watts that a workload may draw, and the rows that it may use.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.workloads import PROFILE, WATTS_PER_GPU, PodSet, Workload
from fleet.errors import FleetwrightError, UnknownNameError
from fleet.gpus import GpuCatalogue, UnstatedFigureError
from fleet.topology import LabelNames
from fleet.topology.labels import GPU_RESOURCES, first_set

GPU_LABELS = LabelNames().gpu


class UnknownDemandError(FleetwrightError):
    """The watts of a workload are not known; the message names what to add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetDemand:
    """The GPUs and watts of one pod set."""

    name: str
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    pod_sets: tuple[PodSetDemand, ...]  # with GPUs
    rows: frozenset[str] | None  # that the node selectors and flavors allow; None: any

    @property
    def watts(self) -> float:
        return sum(each.watts for each in self.pod_sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandModel:
    file: PowerCheckFile
    gpus: GpuCatalogue
    flavors: Mapping[str, Mapping[str, str]]  # node labels by the name of the flavor

    def of(self, workload: Workload) -> Demand:
        """Raise UnknownDemandError where no annotation, profile or GPU type gives the watts."""
        pod_sets, rows = [], None
        for pod_set in workload.spec.pod_sets:
            assigned = workload.assignment(pod_set.name)
            gpus = _gpus_per_pod(pod_set) * (pod_set.count if assigned.count is None else assigned.count)
            if gpus == 0:
                if pod_set.has_uncounted_gpus:
                    raise UnknownDemandError(
                        f"pod set {pod_set.name!r}: the watts of MIG slices and resource claims are not known; expected"
                        f" whole GPUs: {' or '.join(GPU_RESOURCES)}"
                    )
                continue
            flavor = next((assigned.flavors[name] for name in GPU_RESOURCES if name in assigned.flavors), None)
            labels = {**self.flavors.get(flavor or "", {}), **pod_set.template.spec.node_selector}
            pod_sets.append(PodSetDemand(name=pod_set.name, watts=gpus * self._watts_per_gpu(pod_set, labels)))
            if (row := labels.get(self.file.node_label)) is not None:
                rows = frozenset({row}) if rows is None else rows & {row}
        return Demand(pod_sets=tuple(pod_sets), rows=rows)

    def _watts_per_gpu(self, pod_set: PodSet, labels: Mapping[str, str]) -> float:
        annotations = pod_set.template.metadata.annotations
        if (given := annotations.get(WATTS_PER_GPU)) is not None:
            return _watts(given)
        if (profile := annotations.get(PROFILE)) is not None:
            if profile not in self.file.profiles_w:
                known = ", ".join(sorted(self.file.profiles_w)) or "none"
                raise UnknownDemandError(f"annotation {PROFILE}: unknown profile {profile!r}; known: {known}")
            return self.file.profiles_w[profile]
        gpu = first_set(labels, GPU_LABELS)
        if gpu is None:
            raise UnknownDemandError(
                f"pod set {pod_set.name!r}: the watts per GPU are not known; annotate its pods with {WATTS_PER_GPU} or"
                f" {PROFILE}, or set a label of the GPU type on the resource flavor"
            )
        try:
            rated_w = self.gpus.get(gpu).rated_w
        except (UnknownNameError, UnstatedFigureError) as error:
            raise UnknownDemandError(f"pod set {pod_set.name!r}: {error}") from error
        return rated_w * (1.0 + self.file.overhead_share)


def _gpus_per_pod(pod_set: PodSet) -> int:
    try:
        return pod_set.gpus_per_pod
    except ValueError as error:
        raise UnknownDemandError(f"pod set {pod_set.name!r}: the number of GPUs is no whole number: {error}") from error


def _watts(given: str) -> float:
    try:
        watts = float(given)
    except ValueError:
        watts = -1.0
    if not (isfinite(watts) and 0 <= watts <= 100_000):
        raise UnknownDemandError(f"annotation {WATTS_PER_GPU}: allowed: 0 to 100,000 W, got {given!r}")
    return watts
