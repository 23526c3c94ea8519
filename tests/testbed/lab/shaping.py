"""Limits the rate of links: HTB with a queue of 64 packets per destination, configured by tc(8).

A node's NIC is a root class; each destination has a class below it that borrows from it.  A class's own rate is small
and its ceiling is the link's, so that the root's rate bounds the sum: HTB lets a class always use its own rate.
"""

from collections.abc import Mapping
from typing import Final

from tests.testbed.lab import commands

ROOT: Final = "1:1"
FIRST: Final = 16  # class of destination 0
OWN_MBIT: Final = 1.0
QUEUE_PACKETS: Final = 64
BURST: Final = "16k"  # below a message, so that a slow link delays each one


def shape_sender(namespace: str, device: str, targets: Mapping[int, str], rate_mbit: float) -> None:
    """Shape a node's outgoing traffic, with a class for each destination."""
    lines = [
        f"qdisc add dev {device} root handle 1: htb default {FIRST:x}",
        _class("add", device, ROOT, "1:", rate_mbit),
    ]
    for target, address in targets.items():
        minor = f"{FIRST + target:x}"
        lines += [
            _class("add", device, f"1:{minor}", ROOT, rate_mbit, own_mbit=OWN_MBIT),
            f"qdisc add dev {device} parent 1:{minor} pfifo limit {QUEUE_PACKETS}",
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip dst {address}/32 flowid 1:{minor}",
        ]
    commands.tc(lines, namespace=namespace)


def shape_port(namespace: str, device: str, rate_mbit: float) -> None:
    """Shape all outgoing traffic of a switch's port."""
    commands.tc(
        [
            f"qdisc add dev {device} root handle 1: htb default 1",
            _class("add", device, ROOT, "1:", rate_mbit),
            f"qdisc add dev {device} parent {ROOT} pfifo limit {QUEUE_PACKETS}",
        ],
        namespace=namespace,
    )


def set_root(namespace: str, device: str, rate_mbit: float) -> None:
    """Change the total rate."""
    commands.tc([_class("change", device, ROOT, "1:", rate_mbit)], namespace=namespace)


def set_class(namespace: str, device: str, target: int, rate_mbit: float) -> None:
    line = _class("change", device, f"1:{FIRST + target:x}", ROOT, rate_mbit, own_mbit=min(OWN_MBIT, rate_mbit))
    commands.tc([line], namespace=namespace)


def _class(verb: str, device: str, name: str, parent: str, rate_mbit: float, *, own_mbit: float | None = None) -> str:
    own_bit, ceiling_bit = (round(1e6 * mbit) for mbit in (own_mbit or rate_mbit, rate_mbit))
    size = f"rate {own_bit}bit ceil {ceiling_bit}bit burst {BURST} cburst {BURST} quantum 60000"
    return f"class {verb} dev {device} parent {parent} classid {name} htb {size}"
