"""Small fabrics and windows, made without the simulator: the oracle must not share its code."""

import numpy as np

from faults.fabric import NOWHERE, Fabric, Floats, Window

WINDOW_S = 10.0
NOISE = 0.03  # scale of t(4)


def rails(*, nodes: int = 32, ports: int = 2, leaf_nodes: int = 8, spines: int = 4, peers: int = 3) -> Fabric:
    """`ports` NICs per node on a rail each; every NIC sends to the next few on its rail."""
    nic = np.arange(nodes * ports)
    node, rail = nic // ports, nic % ports
    leaf = (node // leaf_nodes) * ports + rail
    source = np.repeat(nic, peers)
    hop = np.tile(np.array([1, 5, 11, 7, 3][:peers]), nic.size)
    target = (((source // ports) + hop) % nodes) * ports + source % ports
    spine = (source * 7 + target * 13 + hop) % spines
    away = leaf[source] != leaf[target]
    leaves = int(leaf.max()) + 1
    return Fabric(
        source=source,
        target=target,
        traffic=np.zeros(source.size, np.int64),
        up=np.where(away, leaf[source] * spines + spine, NOWHERE),
        down=np.where(away, (leaves + leaf[target]) * spines + spine, NOWHERE),
        node=node,
        leaf=leaf,
    )


def one_switch(nodes: int = 8) -> Fabric:
    """Every node sends to every other, all on one switch that the fabric does not name."""
    source, target = (axis.ravel() for axis in np.nonzero(~np.eye(nodes, dtype=bool)))
    nowhere = np.full(source.size, NOWHERE)
    return Fabric(
        source=source, target=target, traffic=np.zeros(source.size, np.int64), up=nowhere, down=nowhere,
        node=np.arange(nodes), leaf=np.full(nodes, NOWHERE),
    )  # fmt: skip


class NoisyWindows:
    """Windows of a fabric with noise, each edge with its own baseline."""

    def __init__(self, fabric: Fabric, *, seed: int, spread: float = 0.04, noise: float = NOISE) -> None:
        self.fabric, self.noise = fabric, noise
        self.rng = np.random.default_rng(seed)
        self.usual = spread * self.rng.standard_normal(len(fabric))
        self.at_s = 0.0

    def window(self, slow: Floats | float = 0.0) -> Window:
        """The next window; `slow`: the log slowdown of each edge."""
        measured = self.usual + slow + self.noise * self.rng.standard_t(4, len(self.fabric))
        self.at_s += WINDOW_S
        return Window(from_s=self.at_s - WINDOW_S, to_s=self.at_s, slowdown=measured)


def slow_tx(fabric: Fabric, nic: int, factor: float, leak: float = 0.3) -> Floats:
    out = np.log(factor)
    return np.asarray(np.where(fabric.source == nic, out, np.where(fabric.target == nic, leak * out, 0.0)))


def slow_rx(fabric: Fabric, nic: int, factor: float, leak: float = 0.3) -> Floats:
    out = np.log(factor)
    return np.asarray(np.where(fabric.target == nic, out, np.where(fabric.source == nic, leak * out, 0.0)))


def slow_leaf(fabric: Fabric, leaf: int, factor: float) -> Floats:
    on_it = (fabric.leaf[fabric.source] == leaf) | (fabric.leaf[fabric.target] == leaf)
    return np.asarray(np.where(on_it, np.log(factor), 0.0))


def slow_uplink(fabric: Fabric, uplink: int, factor: float) -> Floats:
    on_it = (fabric.up == uplink) | (fabric.down == uplink)
    return np.asarray(np.where(on_it, np.log(factor), 0.0))
