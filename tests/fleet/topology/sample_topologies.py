"""A sample topology, helpers for short documents, and random valid topologies."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model
from fleet.errors import DocumentError
from fleet.topology import Node, PowerDomain, PowerKind, Site, Switch, Tier, Topology

HALL = """
sites:
  - name: north
    power:
      - {name: ups-1, kind: ups, limit_w: 100000, redundancy: 2N}
      - {name: row-a, kind: row, parent: ups-1, limit_w: 50000}
      - {name: row-b, kind: row, parent: ups-1, limit_w: 50000}
      - {name: rack-a1, kind: rack, parent: row-a, limit_w: 25000}
      - {name: rack-a2, kind: rack, parent: row-a, limit_w: 25000}
      - {name: rack-b1, kind: rack, parent: row-b, limit_w: 20000}
    network:
      - {name: "leaf-[0-1]", tier: leaf, uplinks: ["spine-[1-2]"]}
      - {name: far-leaf, tier: leaf, uplinks: [spine-3]}
      - {name: "spine-[1-3]", tier: spine, uplinks: [core-1]}
      - {name: core-1, tier: core}
    nodes:
      - {name: "n-[1-2]", power_domain: rack-a1, gpu: H100-SXM, gpus: 8, nominal_w: 10000, leaves: ["leaf-[0-1]"]}
      - {name: n-3, power_domain: rack-b1, gpu: L40S, gpus: 4, nominal_w: 3000, leaves: [far-leaf]}
      - {name: n-4, power_domain: row-b, nominal_w: 500}
  - name: cloud
    zone: eu-1a
    nodes:
      - {name: c-1, gpu: L40S, gpus: 1}
"""


def gpu_counts(topology: Topology) -> dict[str, int]:
    """The number of GPUs of each known type."""
    counts: Counter[str] = Counter()
    for node in topology.index.nodes.values():
        if node.gpu is not None:
            counts[node.gpu] += node.gpus
    return counts


def read(text: str) -> Topology:
    return read_model(parse_document(text, name="fleet.yaml"), Topology)


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def site(**parts: Sequence[str]) -> str:
    """A document with one site, one line per element: the first element of the first kind is on line 5."""
    lines = ["sites:", "  - name: north", "    zone: z"]
    for kind, entries in parts.items():
        lines += [f"    {kind}:", *(f"      - {{{entry}}}" for entry in entries)]
    return "\n".join(lines)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Valid topologies: a random tree of domains with unknown limits, leaves under one spine, nodes anywhere."""
    kinds = sorted(draw(st.lists(st.sampled_from(PowerKind), max_size=8)), key=lambda kind: kind.level)
    power: list[PowerDomain] = []
    for position, kind in enumerate(kinds):
        parent = draw(st.none() | st.sampled_from(power[:position])) if power else None
        power.append(PowerDomain(name=f"d{position}", kind=kind, parent=parent.name if parent else None))
    leaves = draw(st.integers(0, 4))
    network = [Switch(name=f"l[1-{leaves}]", tier=Tier.LEAF, uplinks=("s",))] if leaves else []
    nodes = [
        Node(
            name=draw(st.sampled_from([f"n{position}", f"n{position}-[1-3]"])),
            power_domain=draw(st.none() | st.sampled_from([domain.name for domain in power])) if power else None,
            leaves=tuple(f"l{draw(st.integers(1, leaves))}" for _ in range(draw(st.integers(0, 3)))) if leaves else (),
            gpu="L4",
            gpus=draw(st.integers(1, 8)),
        )
        for position in range(draw(st.integers(0, 6)))
    ]
    spine = Switch(name="s", tier=Tier.SPINE)
    return Topology(sites=(Site(name="x", power=tuple(power), network=(*network, spine), nodes=tuple(nodes)),))
