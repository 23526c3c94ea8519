"""The slow plane: the log slowdown of every edge, window by window, from events at NICs, switches and cables.

A window with a share s of the time at 1 / f of the usual bandwidth has 1 - s (1 - 1 / f) of it.  An agent cuts windows
by its own clock: its interval is shifted by the clock error, so it counts more or less of an event, and bytes of a
burst at an edge go to the neighbouring window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Window
from faults.simulator.cluster import Cluster
from faults.simulator.fault_schedule import HANGS, FaultEvent, FaultKind
from faults.simulator.kernel import AffectedEdges, fill, narrow
from faults.simulator.noise import Noise
from faults.simulator.probes import Probers, Probes

Times = NDArray[np.float64]
_MIN_SHARE = 0.1  # of a window with traffic; less gives no value
_DRIFT_EVERY_S = 60.0
_DAY_S = 86_400.0
_PAUSES = frozenset({FaultKind.PAUSE})  # no rank of a bulk-synchronous job progresses; agents continue


@dataclass(slots=True)
class Clocks:
    """The clocks of all agents; `edge_s` is the position of the next window's edge within a step.

    A clock with error d (d < 0: early) cuts the interval [from + d, to + d].  Bytes flow in bursts, a share `talks` of
    each step; B(t) = bytes until t over their mean rate.  A window w of an even flow counts

        w + (B(p' + d) - B(p')) - (B(p + d) - B(p))        p, p': positions of the window's edges within a step

    so no byte is lost: its neighbour counts what a window misses.
    """

    skew_s: Times  # per node
    late: NDArray[np.float32]  # per NIC: its agent's clock between the earliest (0) and the latest (1)
    max_s: float
    noise: Noise
    rng: np.random.Generator
    node: NDArray[np.int64]  # per NIC
    edge_s: float = 0.0
    _before_s: Times | None = None  # moved over the window's first edge

    @classmethod
    def of(cls, skew_s: Times | None, cluster: Cluster, rng: np.random.Generator, *, noise: Noise) -> "Clocks":
        skew_s = np.zeros(cluster.shape.nodes) if skew_s is None else skew_s
        max_s = float(np.abs(skew_s).max(initial=0.0))
        of_node = (skew_s + max_s) / (2.0 * max_s) if max_s else np.zeros(skew_s.size)
        node = cluster.fabric.node
        edge_s = float(rng.uniform(0.0, noise.step_s))
        return cls(skew_s, of_node[node].astype(np.float32), max_s, noise, rng, node, edge_s)

    def both(self, one: FaultEvent, from_s: float, to_s: float) -> NDArray[np.float32]:
        early, late = (log_slowdown(one, from_s + by_s, to_s + by_s) for by_s in (-self.max_s, self.max_s))
        return np.array([early, late], np.float32)

    def moved(self, flowing_s: float) -> NDArray[np.float32]:
        """Return, per NIC, the log slowdown by the bytes that its agent counts in the neighbouring windows."""
        before_s = self._carried(self.edge_s) if self._before_s is None else self._before_s
        self.edge_s = float(self.rng.uniform(0.0, self.noise.step_s))
        self._before_s = self._carried(self.edge_s)
        extra_s = self._before_s - before_s
        return np.asarray(-np.log1p(extra_s / flowing_s), np.float32)[self.node]

    def _carried(self, edge_s: float) -> Times:
        return self._bytes(edge_s + self.skew_s) - self._bytes(np.full(self.skew_s.size, edge_s))

    def _bytes(self, at_s: Times) -> Times:
        step_s, talks = self.noise.step_s, self.noise.talks
        steps, within_s = np.divmod(at_s, step_s)
        return steps * step_s + np.minimum(within_s, talks * step_s) / talks


def log_slowdown(one: FaultEvent, from_s: float, to_s: float) -> float:
    """Return the log slowdown over an interval of an event that lasts for a part of it."""
    return float(-np.log1p(-one.share(from_s, to_s) * (1.0 - 1.0 / one.factor)))


class SlowPlane:
    def __init__(
        self,
        cluster: Cluster,
        noise: Noise,
        *,
        window_s: float,
        seed: int,
        skew_s: NDArray[np.float64] | None = None,
    ) -> None:
        """`skew_s`: clock error per node; None: all clocks are exact."""
        self._cluster, self._noise, self._window_s = cluster, noise, window_s
        self._clocks = Clocks.of(skew_s, cluster, np.random.default_rng([seed, 10]), noise=noise)
        self._rng = np.random.default_rng([seed, 2])
        fabric = cluster.fabric
        nics = fabric.node.size
        self._ways = np.stack(
            [fabric.source, fabric.target, fabric.up, fabric.down, cluster.ack_up, cluster.ack_down]
        ).astype(np.int32)
        self._passing = AffectedEdges.of(self._ways, nics=nics, uplinks=cluster.shape.uplinks)
        self._kind = fabric.traffic.astype(np.int8)
        unit = (noise.tail / (noise.tail - 2.0)) ** 0.5  # the standard deviation of t itself
        self._scale = np.array(noise.sd(window_s)) / unit
        uneven = 1.0 + noise.uneven * self._rng.standard_normal(len(fabric))
        feels = np.array([1.0, 1.0, noise.small_feels])[fabric.traffic] * np.clip(uneven, 0.2, 1.2)
        self._feels = feels.astype(np.float32)
        self._usual = (noise.spread * self._rng.standard_normal(len(fabric))).astype(np.float32)
        self._wander = np.zeros(nics, np.float32)
        self._of_nic = noise.nic * self._rng.standard_normal(nics)
        self._of_leaf = noise.leaf * self._rng.standard_normal(cluster.shape.leaves)
        self._send, self._take = np.zeros((nics, 2), np.float32), np.zeros((nics, 2), np.float32)
        self._seed = np.random.SeedSequence([seed, 3]).generate_state(1, np.uint64)[0]
        self._probes = Probes(cluster, noise, seed=seed) if len(cluster.probe_up) else None
        self._phase = float(self._rng.uniform(0.0, _DAY_S))
        self._drifted_s = 0.0

    def window(
        self,
        from_s: float,
        *,
        path: NDArray[np.float32],
        reported: NDArray[np.bool_],
        events: Sequence[FaultEvent] = (),
        probers: Probers | None = None,
    ) -> Window:
        """Return the reported window that begins at `from_s`.  `path`: of `Congestion.advance`; changed in place.

        `probers`: the nodes with probers; None: those whose agents report.
        """
        to_s = from_s + self._window_s
        self._wandering(to_s)
        hung, paused = (sum(one.share(from_s, to_s) for one in events if one.kind in of) for of in (HANGS, _PAUSES))
        flowing = 1.0 - hung - paused
        talks = flowing >= _MIN_SHARE
        if not talks and (self._probes is None or hung > 0.0):
            nothing = np.full(len(self._cluster.fabric), np.nan)
            return Window(from_s=from_s, to_s=to_s, slowdown=nothing, probed=None if self._probes is None else nothing)
        links = self._narrowed(events, from_s, to_s, path)
        nic_reported = reported[self._cluster.fabric.node]
        out = (
            self._traffic(from_s, to_s, flowing, path, nic_reported, links)
            if talks
            else np.full(self._kind.size, np.nan)
        )
        foreign = self._foreign(events, nic_reported)
        if self._probes is None:
            return Window(from_s=from_s, to_s=to_s, slowdown=out, foreign=foreign)
        link_slowdowns = [(one.at, one.to, self._slowdown_at(one.at, one, from_s, to_s)) for one in links]
        probed = self._probes.window(
            probers=(probers or Probers(reported, reported)).of(self._cluster.fabric.node),
            send=self._send,
            take=self._take,
            path=path,
            late=self._clocks.late,
            links=link_slowdowns,
        )
        return Window(from_s=from_s, to_s=to_s, slowdown=out, foreign=foreign, probed=probed)

    def _traffic(  # noqa: PLR0917 - arrays of one window
        self, from_s: float, to_s: float, flowing: float, path: NDArray[np.float32], nic_reported: NDArray[np.bool_],
        links: Sequence[FaultEvent],
    ) -> NDArray[np.float64]:  # fmt: skip
        out = np.empty(self._kind.size)
        with np.errstate(over="ignore"):
            self._seed += np.uint64(0xD1342543DE82EF95)
        shift = self._noise.diurnal * float(np.sin(2.0 * np.pi * (from_s + self._phase) / _DAY_S))
        moved = self._clocks.moved(flowing * self._window_s)
        fill(
            out, self._seed, self._noise.tail, shift, self._kind, self._scale / flowing**0.5, self._usual, self._ways,
            self._wander + moved, self._wander, nic_reported,
        )  # fmt: skip
        touched = self._passing.edges(self._send, self._take, path)
        narrow(out, touched, self._noise.leak, self._feels, self._ways, self._send, self._take, path, self._clocks.late)
        self._slow_links(links, out, from_s, to_s)
        return out

    def _wandering(self, to_s: float) -> None:
        """Advance the common noise of NICs and leaves, with its memory, and the slow drift of every edge."""
        noise, rng = self._noise, self._rng
        keep = float(np.exp(-self._window_s / noise.memory_s))
        fresh = (1.0 - keep * keep) ** 0.5
        self._of_nic = keep * self._of_nic + fresh * noise.nic * rng.standard_normal(self._of_nic.size)
        self._of_leaf = keep * self._of_leaf + fresh * noise.leaf * rng.standard_normal(self._of_leaf.size)
        self._wander[:] = self._of_nic + self._of_leaf[self._cluster.fabric.leaf]
        if to_s - self._drifted_s >= _DRIFT_EVERY_S:
            sd = noise.drift_per_sqrt_h * ((to_s - self._drifted_s) / 3600.0) ** 0.5
            self._usual += np.float32(sd) * rng.standard_normal(self._usual.size, dtype=np.float32)
            self._drifted_s = to_s

    def _narrowed(
        self, events: Sequence[FaultEvent], from_s: float, to_s: float, path: NDArray[np.float32]
    ) -> list[FaultEvent]:
        """Set the slowdowns of NICs and uplinks; return those of single links."""
        self._send[:] = 0.0
        self._take[:] = 0.0
        links: list[FaultEvent] = []
        fabric = self._cluster.fabric
        for one in events:
            slowdown = self._clocks.both(one, from_s, to_s)
            match one.kind:
                case FaultKind.SLOW_LINK:
                    links.append(one)
                case FaultKind.UPLINK:
                    path[one.at] = np.maximum(path[one.at], slowdown)
                case FaultKind.FOREIGN:
                    self._send[one.at] = np.maximum(self._send[one.at], slowdown)
                    self._take[one.to] = np.maximum(self._take[one.to], slowdown)
                case FaultKind.SLOW_TX | FaultKind.SLOW_RX | FaultKind.SLOW_NIC:
                    self._nics(
                        np.array([one.at]),
                        slowdown,
                        send=one.kind != FaultKind.SLOW_RX,
                        take=one.kind != FaultKind.SLOW_TX,
                    )
                case FaultKind.SLOW_NODE | FaultKind.HICCUP:
                    self._nics(np.flatnonzero(fabric.node == one.at), slowdown)
                case FaultKind.LEAF:
                    self._nics(np.flatnonzero(fabric.leaf == one.at), slowdown)
                case FaultKind.CHECKPOINT:
                    self._nics(self.writers(), slowdown, take=False)
                case _:
                    pass
        return links

    def _nics(
        self, nics: NDArray[np.int64], slowdown: NDArray[np.float32], *, send: bool = True, take: bool = True
    ) -> None:
        if send:
            self._send[nics] = np.maximum(self._send[nics], slowdown)
        if take:
            self._take[nics] = np.maximum(self._take[nics], slowdown)

    def writers(self) -> NDArray[np.int64]:
        """Return the NICs that carry checkpoints: the first rail of the first replica's nodes."""
        shape = self._cluster.shape
        return np.arange(shape.stages) * shape.replicas * shape.per_node

    def _slow_links(self, links: Sequence[FaultEvent], out: NDArray[np.float64], from_s: float, to_s: float) -> None:
        """Slow one direction of a pair, and by its acknowledgements a part of the other."""
        fabric = self._cluster.fabric
        for one in links:
            for first, last, leak in ((one.at, one.to, 1.0), (one.to, one.at, self._noise.leak)):
                edges = np.flatnonzero((fabric.source == first) & (fabric.target == last))
                out[edges] += leak * self._slowdown_at(first, one, from_s, to_s) * self._feels[edges]

    def _slowdown_at(self, nic: int, one: FaultEvent, from_s: float, to_s: float) -> float:
        late_s = float(self._clocks.skew_s[self._cluster.fabric.node[nic]])
        return log_slowdown(one, from_s + late_s, to_s + late_s)

    def _foreign(self, events: Sequence[FaultEvent], nic_reported: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        foreign_nics = [nic for one in events if one.kind is FaultKind.FOREIGN for nic in (one.at, one.to)]
        foreign_nics += [int(nic) for one in events if one.kind is FaultKind.CHECKPOINT for nic in self.writers()]
        foreign_nics = [nic for nic in foreign_nics if nic_reported[nic]]
        if not foreign_nics:
            return None
        marked = np.zeros(nic_reported.size, dtype=bool)
        marked[foreign_nics] = True
        fabric = self._cluster.fabric
        return np.asarray(marked[fabric.source] | marked[fabric.target])
