"""From what the agent knows to what it says: one report, and the same as metrics."""

from collections.abc import Iterator
from dataclasses import asdict
from math import inf, isinf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.node_agent.gpu.cap_state_machine import Event
from deploy.node_agent.gpu.curves import curve_of, share_of
from deploy.node_agent.gpu.gpu_state import Kind, Sight
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.schemas import Act, CapsBody, GpuReport, NodeReport, OrderReport, PhaseName

_CAP_NAMES = {
    Kind.POWER: ("fleetwright_gpu_power_cap_watts", "Power limit of a GPU, by whose word it is.", 1.0),
    Kind.CLOCK: ("fleetwright_gpu_locked_clock_hertz", "Locked clock of a GPU, by whose word it is.", 1e6),
}
_GAUGES = (
    ("fleetwright_gpu_power_watts", "Board power.", "power_w", 1.0),
    ("fleetwright_gpu_temperature_celsius", "Of the die.", "temperature_c", 1.0),
    ("fleetwright_gpu_sm_clock_hertz", "Of the multiprocessors.", "sm_clock_mhz", 1e6),
    ("fleetwright_gpu_memory_clock_hertz", "Of the memory.", "memory_clock_mhz", 1e6),
    ("fleetwright_gpu_utilization_ratio", "Share of the time in which anything ran.", "utilization", 1.0),
)


def report_of(node: GpuNode, *, server: str) -> NodeReport:
    """Everything."""
    keeper, now_s, doing = node.keeper, node.now_s(), node.doing()
    return NodeReport(
        server=server,
        driver=keeper.gpus.driver,
        act=Act.APPLY if keeper.acting else Act.OBSERVE,
        epoch=keeper.gpus.epoch,
        clock_is_read_back=keeper.gpus.reads_locks,
        phase=PhaseName[doing.phase.name],
        phase_source=doing.source.value,
        gpus=tuple(_gpu(sight, now_s=now_s) for sight in keeper.sights()),
        orders=tuple(
            OrderReport(
                holder=order.holder,
                uuid=order.uuid,
                lapses_in_s=None if isinf(order.until_s) else order.until_s - now_s,
                on_lapse=order.on_lapse,
                **order.caps._asdict(),
            )
            for order in keeper.orders()
        ),
        counts={f"{kind.name.lower()}.{event.value}": keeper.counts[kind, event] for kind in Kind for event in Event},
    )


def _gpu(sight: Sight, *, now_s: float) -> GpuReport:
    identity, limits, curve = asdict(sight.identity), asdict(sight.limits), curve_of(sight.identity.name)
    return GpuReport(
        **identity,
        **limits,
        **asdict(sight.reading),
        age_s=None if sight.seen_s == -inf else max(0.0, now_s - sight.seen_s),
        error=sight.error,
        found=_body(sight.found),
        planned=_body(sight.planned),
        applied=_body(sight.applied),
        enforced=_body(sight.enforced),
        enforced_share=None
        if sight.lost or sight.seen_s == -inf
        else share_of(sight.enforced, limits=sight.limits, curve=curve),
        power_state=sight.levers[Kind.POWER].state.value,
        clock_state=sight.levers[Kind.CLOCK].state.value,
    )


def _body(caps: Caps) -> CapsBody:
    return CapsBody(**caps._asdict())


class GpuMetrics(Collector):
    """Asked at each scrape; says nothing of a GPU that does not answer but that."""

    def __init__(self, node: GpuNode, *, server: str) -> None:
        self._node, self._server = node, server

    def collect(self) -> Iterator[Metric]:
        """Of all GPUs."""
        sights = self._node.keeper.sights()
        seen = [sight for sight in sights if not sight.lost]
        for name, text, field, unit in _GAUGES:
            yield self._gauge(name, text, {s: getattr(s.reading, field) for s in seen}, unit=unit)
        for kind in Kind:
            yield self._caps(kind, seen)
        yield self._gauge("fleetwright_gpu_up", "Whether it does.", {s: float(not s.lost) for s in sights})
        yield from self._counters(seen)

    def _gauge(
        self, name: str, text: str, values: dict[Sight, float | None], *, unit: float = 1.0
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["server", "gpu"])
        for sight, value in values.items():
            if value is not None:
                family.add_metric([self._server, sight.identity.uuid], value * unit)
        return family

    def _caps(self, kind: Kind, sights: list[Sight]) -> GaugeMetricFamily:
        name, text, unit = _CAP_NAMES[kind]
        family = GaugeMetricFamily(name, text, labels=["server", "gpu", "source"])
        for sight in sights:
            for source in ("planned", "applied", "enforced"):
                value = getattr(sight, source)[kind]
                if value is not None:
                    family.add_metric([self._server, sight.identity.uuid, source], value * unit)
        return family

    def _counters(self, sights: list[Sight]) -> Iterator[CounterMetricFamily]:
        energy = CounterMetricFamily(
            "fleetwright_gpu_energy_joules", "Since the driver was loaded.", labels=["server", "gpu"]
        )
        errors = CounterMetricFamily(
            "fleetwright_gpu_ecc_errors", "Since the driver was loaded.", labels=["server", "gpu", "kind"]
        )
        for sight in sights:
            reading, labels = sight.reading, [self._server, sight.identity.uuid]
            if reading.energy_j is not None:
                energy.add_metric(labels, reading.energy_j)
            for kind, count in (("corrected", reading.ecc_corrected), ("uncorrected", reading.ecc_uncorrected)):
                if count is not None:
                    errors.add_metric([*labels, kind], count)
        events = CounterMetricFamily(
            "fleetwright_gpu_cap_events", "What became of caps.", labels=["server", "lever", "event"]
        )
        for lever in Kind:
            for event in Event:
                count = self._node.keeper.counts[lever, event]
                events.add_metric([self._server, lever.name.lower(), event.value], count)
        yield from (energy, errors, events)
