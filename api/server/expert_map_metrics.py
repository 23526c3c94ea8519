"""Exports the progress of expert maps: which replicas have the target placement, and which still have another."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.expert_maps import ExpertMapPhase
from api.schemas.targets import TargetStatus


def expert_map_metrics(targets: Iterable[tuple[str, TargetStatus]]) -> Iterable[Metric]:
    """Yield the metrics of every target with expert maps, as of the last report."""
    part = ["target", "part"]
    replicas = GaugeMetricFamily(
        "fleetwright_expert_map_replicas",
        "Replicas by the state of their expert map: loaded: the target placement; waiting: another; refused.",
        labels=[*part, "state"],
    )
    phase = GaugeMetricFamily(
        "fleetwright_expert_map_phase", "1 for the phase of the rollout of an expert map.", labels=[*part, "phase"]
    )
    for target, status in targets:
        for name, found in status.expert_maps.items():
            for state, count in (("loaded", found.loaded), ("waiting", found.waiting), ("refused", found.refused)):
                replicas.add_metric([target, name, state], count)
            for each in ExpertMapPhase:
                phase.add_metric([target, name, each.value], found.phase is each)
    yield from (replicas, phase)
