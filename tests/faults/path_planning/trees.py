"""Fat trees and jobs for path planning."""

import random
from typing import Any

from faults.path_planning import Traffic, TrafficJob, traffic_of
from fleet.topology import Topology

LINK_GB_PER_S = 50.0


def tree(*, pods: int = 4, width: int = 4, hosts: int = 4, ports: int = 1, parallel: int = 1) -> Topology:
    """A fat tree of pods with `width` leaves and spines each, `hosts` nodes per leaf; with 1 pod it has two tiers."""
    link = {"link_gb_per_s": LINK_GB_PER_S, "links_per_uplink": parallel}
    network: list[dict[str, Any]] = []
    nodes = []
    for pod in range(pods):
        spines = [f"s{pod}-[0-{width - 1}]"]
        network.append({"name": f"l{pod}-[0-{width - 1}]", "tier": "leaf", "uplinks": spines, **link})
        for plane in range(width):
            up = {"uplinks": [f"c{plane}-[0-{width - 1}]"], **link} if pods > 1 else {}
            network.append({"name": f"s{pod}-{plane}", "tier": "spine", **up})
        nodes += [
            {
                "name": f"n{pod}-{leaf}-[0-{hosts - 1}]",
                "leaves": [f"l{pod}-{leaf + port}" for port in range(ports)],
                "nic_gb_per_s": LINK_GB_PER_S,
            }
            for leaf in range(0, width, ports)
        ]
    if pods > 1:
        network += [{"name": f"c{plane}-[0-{width - 1}]", "tier": "core"} for plane in range(width)]
    return Topology.model_validate({"sites": [{"name": "x", "network": network, "nodes": nodes}]})


def job(topology: Topology, *, seed: int | None = None, rings: int = 1, **fields: Any) -> Traffic:
    """All nodes in some rings, shuffled by a seed; without a seed in the order of the document."""
    names = list(topology.index.nodes)
    if seed is not None:
        random.Random(seed).shuffle(names)
    size = len(names) // rings
    written = [{"name": f"r{ring}", "members": names[ring * size : (ring + 1) * size]} for ring in range(rings)]
    return traffic_of(TrafficJob.model_validate({"name": "j", "rings": written, **fields}), topology.index)


def killed(traffic: Traffic, share: float, seed: int) -> Traffic:
    """The same traffic with some dead cables."""
    wires = range(len(traffic.clos.wires))
    return traffic.on(traffic.clos.without(random.Random(seed).sample(wires, int(len(wires) * share))))
