"""The fields of Kueue's objects that the power check uses, and what a workload is for power.  Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from deploy.common.kubernetes_objects import Condition, Metadata, ObjectPart
from fleet.topology.labels import GPU_RESOURCES

CONTROLLER: Final = "fleetwright.io/power"
API: Final = "/apis/kueue.x-k8s.io/v1beta2"
WATTS_PER_GPU: Final = "fleetwright.io/watts-per-gpu"  # annotations of the pods of a job
MIG: Final = "nvidia.com/mig-"  # prefix of the resources that are slices of a GPU
PROFILE: Final = "fleetwright.io/power-profile"
WATTS: Final = "fleetwright.io/watts"  # annotation that an admitted job's pods receive: what the job may draw in all


class CheckState(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class TimedCondition(Condition):
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class KueueMetadata(Metadata):
    namespace: str = ""
    generation: int = 0


class _CheckSpec(ObjectPart):
    controller_name: str = ""
    parameters: Mapping[str, Any] | None = None


class _CheckStatus(ObjectPart):
    conditions: tuple[TimedCondition, ...] = ()


class AdmissionCheck(ObjectPart):
    metadata: KueueMetadata
    spec: _CheckSpec = _CheckSpec()
    status: _CheckStatus = _CheckStatus()


class _FlavorSpec(ObjectPart):
    node_labels: Mapping[str, str] = {}


class ResourceFlavor(ObjectPart):
    metadata: KueueMetadata
    spec: _FlavorSpec = _FlavorSpec()


class _Resources(ObjectPart):
    limits: Mapping[str, int | str] = {}
    requests: Mapping[str, int | str] = {}


class _Container(ObjectPart):
    resources: _Resources = _Resources()
    restart_policy: str = ""

    @property
    def gpus(self) -> int:
        """Return the GPUs of all vendors; no GPU is requested in parts."""
        found = {**self.resources.requests, **self.resources.limits}
        return sum(int(found.get(name, 0)) for name in GPU_RESOURCES)

    @property
    def has_gpu_slices(self) -> bool:
        return any(name.startswith(MIG) for name in {**self.resources.requests, **self.resources.limits})


class _PodSpec(ObjectPart):
    node_selector: Mapping[str, str] = {}
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resource_claims: tuple[Mapping[str, Any], ...] = ()


class _PodMetadata(ObjectPart):
    annotations: Mapping[str, str] = {}


class _Template(ObjectPart):
    metadata: _PodMetadata = _PodMetadata()
    spec: _PodSpec = _PodSpec()


class PodSet(ObjectPart):
    name: str = "main"
    count: int = 1
    template: _Template = _Template()

    @property
    def gpus_per_pod(self) -> int:
        """Return the GPUs of containers and sidecars together, or of the largest init step."""
        steps = self.template.spec.init_containers
        sidecars = [step for step in steps if step.restart_policy == "Always"]
        together = sum(container.gpus for container in (*self.template.spec.containers, *sidecars))
        return max([together, *(step.gpus for step in steps)])

    @property
    def has_uncounted_gpus(self) -> bool:
        """Return whether the pods may have GPUs that are no whole GPUs of a device plugin: MIG slices, claims."""
        spec = self.template.spec
        return bool(spec.resource_claims) or any(
            container.has_gpu_slices for container in (*spec.containers, *spec.init_containers)
        )


class _WorkloadSpec(ObjectPart):
    active: bool = True
    priority: int = 0
    pod_sets: tuple[PodSet, ...] = ()
    maximum_execution_time_seconds: int | None = None


class PodSetAssignment(ObjectPart):
    name: str = "main"
    flavors: Mapping[str, str] = {}
    count: int | None = None


class _Admission(ObjectPart):
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(ObjectPart):
    name: str
    annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}


class CheckStatus(ObjectPart):
    name: str
    state: CheckState
    message: str = ""
    retry_count: int | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class _WorkloadStatus(ObjectPart):
    conditions: tuple[TimedCondition, ...] = ()
    admission: _Admission | None = None
    admission_checks: tuple[CheckStatus, ...] = ()
    accumulated_past_execution_time_seconds: int = 0


class Workload(ObjectPart):
    metadata: KueueMetadata
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        return f"{API}/namespaces/{self.metadata.namespace}/workloads/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        return self.has("Finished")

    @property
    def has_quota(self) -> bool:
        return self.has("QuotaReserved")

    @property
    def evicted(self) -> bool:
        return self.has("Evicted")

    @property
    def created_at_s(self) -> float:
        return datetime.fromisoformat(self.metadata.creation_timestamp).timestamp()

    @property
    def ends_at_s(self) -> float | None:
        """Return when Kueue ends the workload at the latest, if its job has a maximum time."""
        admitted = self._condition("Admitted")
        longest_s = self.spec.maximum_execution_time_seconds
        if longest_s is None or admitted is None or admitted.last_transition_time is None:
            return None
        past_s = self.status.accumulated_past_execution_time_seconds
        return admitted.last_transition_time.timestamp() + longest_s - past_s

    def has(self, condition: str) -> bool:
        found = self._condition(condition)
        return found is not None and found.status == "True"

    def check(self, names: Sequence[str]) -> tuple[int, CheckStatus] | None:
        """Return the state of the first of these checks, and its place in the list."""
        found = ((at, each) for at, each in enumerate(self.status.admission_checks) if each.name in names)
        return next(found, None)

    def assignment(self, pod_set: str) -> PodSetAssignment:
        """Return what Kueue has assigned to a pod set; without a quota, nothing."""
        assigned = () if self.status.admission is None else self.status.admission.pod_set_assignments
        return next((each for each in assigned if each.name == pod_set), PodSetAssignment(name=pod_set))

    def _condition(self, kind: str) -> TimedCondition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)
