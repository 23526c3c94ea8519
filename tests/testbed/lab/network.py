"""Creates nodes as network namespaces on one bridge, each behind a shaped link, and always removes them.

A namespace's name contains its owner (`leftovers`): the next run removes the namespaces of a killed one.  The machine's
own network does not change.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testbed.lab import commands, leftovers, shaping
from tests.testbed.requirements import UnavailableError

NETNS: Final = Path("/run/netns")
DEVICE: Final = "e0"  # a node's only link
NOWHERE: Final = "02:de:ad:00:00:01"  # a MAC of no node


@dataclass(frozen=True, slots=True)
class Network:
    """Connects `nodes` namespaces by a bridge, which has its own namespace."""

    owner: str
    nodes: int
    rate_mbit: float

    def namespace(self, node: int) -> str:
        return f"{self.owner}-n{node}"

    @property
    def bridge(self) -> str:
        return f"{self.owner}-br"

    def path(self, node: int) -> Path:
        """Return the namespace's path for `setns` and `nsenter`."""
        return NETNS / self.namespace(node)

    @staticmethod
    def address(node: int) -> str:
        return f"10.77.0.{node + 1}"

    def slow_link(self, *, source: int, target: int, rate_mbit: float) -> None:
        """Slow only the traffic from `source` to `target`."""
        shaping.set_class(self.namespace(source), DEVICE, target, rate_mbit)

    def slow_tx(self, node: int, *, rate_mbit: float) -> None:
        """Slow all traffic that the node sends."""
        shaping.set_root(self.namespace(node), DEVICE, rate_mbit)

    def slow_rx(self, node: int, *, rate_mbit: float) -> None:
        """Slow all traffic to the node, at the switch's port."""
        shaping.set_root(self.bridge, f"p{node}", rate_mbit)

    def cut_node(self, node: int) -> None:
        """Set the switch's port down."""
        commands.ip([f"link set p{node} down"], namespace=self.bridge)

    def cut_pair(self, *, source: int, target: int) -> None:
        """Cut one direction without a firewall: the source sends to a MAC that no node has."""
        line = f"neigh replace {self.address(target)} lladdr {NOWHERE} nud permanent dev {DEVICE}"
        commands.ip([line], namespace=self.namespace(source))


@contextmanager
def running_network(*, nodes: int, rate_mbit: float = 200.0) -> Iterator[Network]:
    """Create the namespaces, links and shapers; at the end remove them and kill the processes in them."""
    commands.need_tools()
    remove_stale()
    network = Network(owner=leftovers.owner(), nodes=nodes, rate_mbit=rate_mbit)
    try:
        _make(network)
        yield network
    finally:
        _remove(name for name in commands.namespaces() if name.startswith(f"{network.owner}-"))


def remove_stale() -> None:
    """Remove the namespaces and folders of killed runs, and kill the processes in them."""
    _remove(name for name in commands.namespaces() if leftovers.is_left(name))
    leftovers.remove_folders()


def _make(network: Network) -> None:
    try:
        commands.ip([f"netns add {network.bridge}"])
    except commands.CommandError as error:
        raise UnavailableError(f"network namespaces are not allowed here: {error}") from None
    try:
        commands.ip(
            ["link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 up"], namespace=network.bridge
        )
        commands.ip([f"netns add {network.namespace(node)}" for node in range(network.nodes)])
        commands.ip(line for node in range(network.nodes) for line in _cable(network, node))
        for node in range(network.nodes):
            commands.ip(_address_lines(network, node), namespace=network.namespace(node))
            shaping.shape_sender(network.namespace(node), DEVICE, _others(network, node), network.rate_mbit)
        commands.ip(
            (f"link set p{node} {what}" for node in range(network.nodes) for what in ("master br0", "up")),
            namespace=network.bridge,
        )
        for node in range(network.nodes):
            shaping.shape_port(network.bridge, f"p{node}", network.rate_mbit)
    except commands.CommandError as error:
        raise UnavailableError(f"links cannot be created or shaped here: {error}") from None


def _cable(network: Network, node: int) -> list[str]:
    return [
        f"link add {DEVICE} netns {network.namespace(node)} type veth peer name p{node} netns {network.bridge}",
    ]


def _address_lines(network: Network, node: int) -> list[str]:
    neighbours = [
        f"neigh replace {network.address(other)} lladdr {_mac(other)} nud permanent dev {DEVICE}"
        for other in range(network.nodes)
        if other != node
    ]
    return [
        "link set lo up",
        f"link set {DEVICE} address {_mac(node)}",
        f"link set {DEVICE} up",
        f"addr add {network.address(node)}/24 dev {DEVICE}",
        *neighbours,
    ]


def _others(network: Network, node: int) -> dict[int, str]:
    return {other: network.address(other) for other in range(network.nodes) if other != node}


def _mac(node: int) -> str:
    return f"02:77:00:00:00:{node + 1:02x}"


def _remove(names: Iterator[str]) -> None:
    for name in list(names):
        for pid in commands.processes_in(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(commands.CommandError):  # another run removed it first
            commands.ip([f"netns del {name}"])


def check_allowed() -> None:
    """Raise `UnavailableError` with the reason where the lab cannot run."""
    if sys.platform != "linux":
        raise UnavailableError("network namespaces are Linux's")
    with running_network(nodes=2):
        pass
