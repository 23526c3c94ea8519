"""The report of a node's GPUs, and the same as metrics."""

from collections.abc import Iterator
from dataclasses import asdict
from math import inf, isinf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.node_agent.gpu.cap_state_machine import Event
from deploy.node_agent.gpu.curves import curve_of, share_of
from deploy.node_agent.gpu.gpu_state import CapKind, GpuState
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.schemas import ActuationMode, CapsBody, GpuReport, LeaseReport, NodeReport, PhaseName

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
        orders=tuple(
            LeaseReport(
                holder=order.holder,
                uuid=order.uuid,
                lapses_in_s=None if isinf(order.until_s) else order.until_s - now_s,
                on_lapse=order.on_lapse,
                **order.caps._asdict(),
            )
            for order in cap_controller.leases()
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
        gpu_states = self._node.cap_controller.gpu_states()
        reachable = [gpu for gpu in gpu_states if not gpu.lost]
        for name, text, field, unit in _GAUGES:
            yield self._gauge(name, text, {s: getattr(s.reading, field) for s in reachable}, unit=unit)
        for kind in CapKind:
            yield self._caps(kind, reachable)
        yield self._gauge("fleetwright_gpu_up", "Whether it does.", {s: float(not s.lost) for s in gpu_states})
        yield from self._counters(reachable)

    def _gauge(
        self, name: str, text: str, values: dict[GpuState, float | None], *, unit: float = 1.0
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["server", "gpu"])
        for gpu, value in values.items():
            if value is not None:
                family.add_metric([self._server, gpu.identity.uuid], value * unit)
        return family

    def _caps(self, kind: CapKind, gpu_states: list[GpuState]) -> GaugeMetricFamily:
        name, text, unit = _CAP_NAMES[kind]
        family = GaugeMetricFamily(name, text, labels=["server", "gpu", "source"])
        for gpu in gpu_states:
            for source in ("planned", "applied", "enforced"):
                value = getattr(gpu, source)[kind]
                if value is not None:
                    family.add_metric([self._server, gpu.identity.uuid, source], value * unit)
        return family

    def _counters(self, gpu_states: list[GpuState]) -> Iterator[CounterMetricFamily]:
        energy = CounterMetricFamily(
            "fleetwright_gpu_energy_joules", "Since the driver was loaded.", labels=["server", "gpu"]
        )
        errors = CounterMetricFamily(
            "fleetwright_gpu_ecc_errors", "Since the driver was loaded.", labels=["server", "gpu", "kind"]
        )
        for gpu in gpu_states:
            reading, labels = gpu.reading, [self._server, gpu.identity.uuid]
            if reading.energy_j is not None:
                energy.add_metric(labels, reading.energy_j)
            for kind, count in (("corrected", reading.ecc_corrected), ("uncorrected", reading.ecc_uncorrected)):
                if count is not None:
                    errors.add_metric([*labels, kind], count)
        events = CounterMetricFamily(
            "fleetwright_gpu_cap_events", "Outcomes of cap writes.", labels=["server", "cap", "event"]
        )
        for cap_state in CapKind:
            for event in Event:
                count = self._node.cap_controller.counts[cap_state, event]
                events.add_metric([self._server, cap_state.name.lower(), event.value], count)
        yield from (energy, errors, events)
