"""Publishes wanted replica counts in the dialects that autoscalers read.  An autoscaler, not Fleetwright, writes them.

Only targets in mode `recommend` publish: one owner per count.  A count that is missing has no series and no page, which
autoscalers treat as an error and hold; zero would scale down.  Pure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.schemas.applications import KubernetesScale
from api.schemas.targets import Mode, Target, TargetStatus
from api.schemas.wanted import WantedCounts, WantedPart


class Dialect(StrEnum):
    """A dialect whose names belong to another program, so that the service speaks it only by a setting."""

    LLM_D = "llm-d"
    AIBRIX = "aibrix"


def counts_of(target: Target, status: TargetStatus | None) -> WantedCounts | None:
    """Return the counts that a target publishes; None where it publishes none."""
    if status is None or target.spec.mode is not Mode.RECOMMEND or target.spec.plan_id is None:
        return None  # the status may be older than the mode
    return status.wanted


def parts_of(target: Target, counts: WantedCounts) -> tuple[WantedPart, ...]:
    """Return the counts of the parts that the target has now, with what they scale."""
    application = target.spec.application
    objects = application.objects if isinstance(application, KubernetesScale) else {}
    namespace = application.namespace if isinstance(application, KubernetesScale) else None
    return tuple(
        WantedPart(
            part=part,
            unit=unit,
            replicas=counts.replicas[part],
            namespace=namespace,
            kind=objects[part].kind if part in objects else None,
            name=objects[part].name if part in objects else None,
        )
        for part, unit in sorted(application.parts.items())
        if part in counts.replicas
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedObject:
    """The wanted count of one Kubernetes object."""

    target: str
    workload: str
    part: str
    namespace: str
    kind: str
    name: str
    wanted: int
    running: int | None  # None: the last reconcile could not observe it

    @property
    def gpu(self) -> str:
        """Return the GPU type of the part."""
        return self.part.partition("/")[0].partition("@")[0]

    @property
    def ratio(self) -> float | None:
        """Return wanted per running replica; from zero running replicas it is the wanted count."""
        if self.running is None:
            return None
        return self.wanted / self.running if self.running else float(self.wanted)


@dataclass(frozen=True, slots=True)
class PublishedObjects:
    """The Kubernetes objects with a wanted count; without those that two targets claim."""

    objects: Sequence[WantedObject] = ()

    def find(self, *, namespace: str, name: str) -> WantedObject | None:
        """Return an object by its name, a Deployment before any other; None where two others share the name."""
        found = [each for each in self.objects if (each.namespace, each.name) == (namespace, name)]
        deployments = [each for each in found if each.kind == "Deployment"]
        chosen = deployments or found
        return chosen[0] if len(chosen) == 1 else None


def published_objects(reported: Iterable[tuple[Target, TargetStatus | None]]) -> PublishedObjects:
    """Collect the objects of all targets.  An object of two targets has two wanted counts, so it gets none."""
    found: list[WantedObject] = []
    for target, status in reported:
        if status is None or (counts := counts_of(target, status)) is None:
            continue
        for part in parts_of(target, counts):
            if part.namespace is None or part.kind is None or part.name is None:
                continue
            found.append(
                WantedObject(
                    target=target.name,
                    workload=target.spec.workload,
                    part=part.part,
                    namespace=part.namespace,
                    kind=part.kind,
                    name=part.name,
                    wanted=part.replicas,
                    running=status.applied.get(part.part),
                )
            )
    claims = Counter((each.namespace, each.kind, each.name) for each in found)
    return PublishedObjects([each for each in found if claims[each.namespace, each.kind, each.name] == 1])


def wanted_metrics(reported: Sequence[tuple[Target, TargetStatus | None]], at: datetime) -> Iterable[Metric]:
    """Return the gauges of Fleetwright's own names, for HPA and KEDA through Prometheus."""
    wanted = GaugeMetricFamily(
        "fleetwright_target_replicas_wanted",
        "Replicas that an external autoscaler should run: those of the plan, raised to min_replicas.",
        labels=["target", "gpu", "scaled_namespace", "scaled_kind", "scaled_name"],
    )
    age = GaugeMetricFamily(
        "fleetwright_target_wanted_age_seconds",
        "Time since a reconcile last confirmed the wanted replicas.",
        labels=["target"],
    )
    unclaimed = {(each.target, each.part) for each in published_objects(reported).objects}
    for target, status in reported:
        if (counts := counts_of(target, status)) is None:
            continue
        for part in parts_of(target, counts):
            if part.kind is None or (target.name, part.part) in unclaimed:
                labels = [target.name, part.part, part.namespace or "", part.kind or "", part.name or ""]
                wanted.add_metric(labels, part.replicas)
        age.add_metric([target.name], max(0.0, (at - counts.at).total_seconds()))
    yield from (wanted, age)


def llm_d_page(published: PublishedObjects) -> bytes:
    """Render the gauges of llm-d's workload variant autoscaler: a variant is a scaled object."""
    registry = CollectorRegistry()
    registry.register(_LlmD(published.objects))
    return generate_latest(registry)


class _LlmD(Collector):
    def __init__(self, objects: Sequence[WantedObject]) -> None:
        names = Counter((each.namespace, each.name) for each in objects)
        self._variants = [each for each in objects if names[each.namespace, each.name] == 1]

    def collect(self) -> Iterable[Metric]:
        desired = _variant_gauge("wva_desired_replicas", "Desired number of replicas of a variant.")
        current = _variant_gauge("wva_current_replicas", "Current number of replicas of a variant.")
        ratio = _variant_gauge("wva_desired_ratio", "Desired per current number of replicas of a variant.")
        for each in self._variants:
            labels = [each.name, each.namespace, each.gpu]
            desired.add_metric(labels, each.wanted)
            if each.running is not None and each.ratio is not None:
                current.add_metric(labels, each.running)
                ratio.add_metric(labels, each.ratio)
        yield from (desired, current, ratio)


def _variant_gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["variant_name", "namespace", "accelerator_type"])


def aibrix_page(found: WantedObject) -> bytes:
    """Render the page that AIBrix's GPU optimizer serves for one deployment."""
    name = "vllm:deployment_replicas"
    model = _escaped(found.workload)
    lines = (f"# HELP {name} Number of suggested replicas.", f"# TYPE {name} gauge")
    return "\n".join([*lines, f'{name}{{model_name="{model}"}} {found.wanted}', ""]).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
