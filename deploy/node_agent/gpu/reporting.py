"""The report of a node's GPUs, and the same as metrics."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from math import inf, isinf
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.node_agent.gpu.cap_state_machine import Event
from deploy.node_agent.gpu.curves import curve_of, share_of
from deploy.node_agent.gpu.gpu_state import CapKind, GpuState
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.schemas import ActuationMode, CapsBody, GpuReport, LeaseReport, NodeReport, PhaseName

FamilyT = TypeVar("FamilyT", bound=GaugeMetricFamily | CounterMetricFamily)

_SOURCES = ("planned", "applied", "enforced")
_CAP_NAMES = {
    CapKind.POWER: ("fleetwright_gpu_power_cap_watts", "Power limit of a GPU, by source.", 1.0),
    CapKind.CLOCK: ("fleetwright_gpu_locked_clock_hertz", "Locked clock of a GPU, by source.", 1e6),
}
_GAUGES = (
    ("fleetwright_gpu_power_watts", "Board power.", "power_w", 1.0),
    ("fleetwright_gpu_temperature_celsius", "Of the die.", "temperature_c", 1.0),
    ("fleetwright_gpu_sm_clock_hertz", "Of the multiprocessors.", "sm_clock_mhz", 1e6),
    ("fleetwright_gpu_memory_clock_hertz", "Of the memory.", "memory_clock_mhz", 1e6),
    ("fleetwright_gpu_utilization_ratio", "Share of the time in which anything ran.", "utilization", 1.0),
)


def report_of(node: GpuNode, *, server: str) -> NodeReport:
    cap_controller, now_s, node_phase = node.cap_controller, node.now_s(), node.node_phase()
    return NodeReport(
        server=server,
        driver=cap_controller.gpus.driver,
        act=ActuationMode.APPLY if cap_controller.acting else ActuationMode.OBSERVE,
        epoch=cap_controller.gpus.epoch,
        clock_is_read_back=cap_controller.gpus.reports_locked_clock,
        phase=PhaseName[node_phase.phase.name],
        phase_source=node_phase.source.value,
        gpus=tuple(_gpu(gpu, now_s=now_s) for gpu in cap_controller.gpu_states()),
        leases=tuple(
            LeaseReport(
                holder=lease.holder,
                uuid=lease.uuid,
                expires_in_s=None if isinf(lease.until_s) else lease.until_s - now_s,
                on_expiry=lease.on_expiry,
                **lease.caps._asdict(),
            )
            for lease in cap_controller.leases()
        ),
        counts={
            f"{kind.name.lower()}.{event.value}": cap_controller.counts[kind, event]
            for kind in CapKind
            for event in Event
        },
    )


def _gpu(gpu: GpuState, *, now_s: float) -> GpuReport:
    identity, limits, curve = asdict(gpu.identity), asdict(gpu.limits), curve_of(gpu.identity.name)
    return GpuReport(
        **identity,
        **limits,
        **asdict(gpu.reading),
        age_s=None if gpu.polled_at_s == -inf else max(0.0, now_s - gpu.polled_at_s),
        error=gpu.error,
        found=_body(gpu.found),
        planned=_body(gpu.planned),
        applied=_body(gpu.applied),
        enforced=_body(gpu.enforced),
        enforced_share=None
        if gpu.lost or gpu.polled_at_s == -inf
        else share_of(gpu.enforced, limits=gpu.limits, curve=curve),
        power_state=gpu.cap_states[CapKind.POWER].state.value,
        clock_state=gpu.cap_states[CapKind.CLOCK].state.value,
    )


def _body(caps: Caps) -> CapsBody:
    return CapsBody(**caps._asdict())


class GpuMetrics(Collector):
    """Metrics collected at each scrape; a GPU that does not respond has only `fleetwright_gpu_up`."""

    def __init__(self, node: GpuNode, *, server: str) -> None:
        self._node, self._server = node, server

    def collect(self) -> Iterator[Metric]:
        gpu_states, counts = self._node.cap_controller.gpu_states(), self._node.cap_controller.counts
        reachable = [gpu for gpu in gpu_states if not gpu.lost]
        readings = {gpu.identity.uuid: gpu.reading for gpu in reachable}
        for name, text, field, unit in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["server", "gpu"])
            values = (((uuid,), getattr(reading, field)) for uuid, reading in readings.items())
            yield self._filled(gauge, values, unit=unit)
        for kind, (name, text, unit) in _CAP_NAMES.items():
            gauge = GaugeMetricFamily(name, text, labels=["server", "gpu", "source"])
            caps = (
                ((gpu.identity.uuid, source), getattr(gpu, source)[kind]) for gpu in reachable for source in _SOURCES
            )
            yield self._filled(gauge, caps, unit=unit)
        up = GaugeMetricFamily("fleetwright_gpu_up", "Whether the GPU responds.", labels=["server", "gpu"])
        yield self._filled(up, (((gpu.identity.uuid,), float(not gpu.lost)) for gpu in gpu_states))
        energy = CounterMetricFamily(
            "fleetwright_gpu_energy_joules", "Since the driver was loaded.", labels=["server", "gpu"]
        )
        yield self._filled(energy, (((uuid,), reading.energy_j) for uuid, reading in readings.items()))
        errors = CounterMetricFamily(
            "fleetwright_gpu_ecc_errors", "Since the driver was loaded.", labels=["server", "gpu", "kind"]
        )
        for uuid, reading in readings.items():
            self._filled(
                errors, [((uuid, "corrected"), reading.ecc_corrected), ((uuid, "uncorrected"), reading.ecc_uncorrected)]
            )
        yield errors
        events = CounterMetricFamily(
            "fleetwright_gpu_cap_events", "Outcomes of cap writes.", labels=["server", "cap", "event"]
        )
        written = (((kind.name.lower(), event.value), counts[kind, event]) for kind in CapKind for event in Event)
        yield self._filled(events, written)

    def _filled(
        self, family: FamilyT, values: Iterable[tuple[Sequence[str], float | None]], *, unit: float = 1.0
    ) -> FamilyT:
        """Add the values that are known, by their labels after the server's."""
        for labels, value in values:
            if value is not None:
                family.add_metric([self._server, *labels], value * unit)
        return family
