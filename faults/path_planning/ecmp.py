"""A fabric without planned paths: each switch picks the next cable by a hash of the five-tuple.

Vendors do not publish their hashes.  This one is a model: the finaliser of splitmix64 (Steele, Lea and Flood 2014) over
addresses and source port, mixed at every switch with that switch's seed.  The destination port (4791) and the protocol
are the same for all RoCEv2 traffic and are left out.  Equal-cost choices are the live cables that lead to the target's
leaf.  A bonded NIC picks its sending port in the same way, and that port determines the receiving port.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.path_planning.assignment import DOWN, UP, Part, Path
from faults.path_planning.clos import Routes
from faults.path_planning.traffic import Nic, Traffic

FIRST_PORT, PORTS = 49_152, 16_384  # the range of RoCEv2 senders: 0xC000 to 0xFFFF
MAX_HOPS: Final = 4

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]


def mix64(words: Words) -> Words:
    """Mix every bit of a word into every bit of the result."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Words = words ^ (words >> np.uint64(31))
    return found


def _seed(name: str) -> int:
    return zlib.crc32(name.encode()) * 0x9E3779B97F4A7C15 % 2**64


def address(nic: Nic) -> int:
    """Return a NIC's address as a number; derived from its name where no address is known."""
    return _seed(nic.name) if nic.address is None else int(ip_address(nic.address)) % 2**64


class Fabric:
    """All next hops of all switches towards the leaves of a job, as tables."""

    def __init__(self, traffic: Traffic, routes: Routes | None = None) -> None:
        self.traffic = traffic
        self.routes = Routes(traffic.clos) if routes is None else routes
        self._states: dict[tuple[int, int], int] = {}
        self._choices: list[list[tuple[int, int]]] = []  # (link, next state) of each state
        self._switch: list[int] = []
        self._addresses = np.array([address(nic) for nic in traffic.nics], dtype=np.uint64)
        self._ports = np.array([len(nic.leaves) for nic in traffic.nics])
        pairs = {(flow.source, flow.target) for flow in traffic.flows}
        self._starts = {
            (traffic.nics[one].leaves[i], traffic.nics[other].leaves[j]): 0
            for one, other in pairs
            for i in range(len(traffic.nics[one].leaves))
            for j in range(len(traffic.nics[other].leaves))
        }
        for pair in self._starts:
            self._starts[pair] = self._state(*pair)
        self._tables()

    def _state(self, switch: int, target: int) -> int:
        key = switch, target
        if key not in self._states:
            self._states[key] = len(self._states)
            self._choices.append([])
            self._switch.append(switch)
            self._choices[self._states[key]] = [(link, self._state(after, target)) for link, after in self._hops(*key)]
        return self._states[key]

    def _hops(self, switch: int, target: int) -> Iterator[tuple[int, int]]:
        clos = self.traffic.clos
        tier = clos.tiers[switch].level
        if switch == target:
            return
        if (target, switch) in clos.trunks:
            yield from ((2 * cable + DOWN, target) for cable in clos.trunks[target, switch])
        elif tier == 0:
            for spine in dict.fromkeys(up for up, _ in self.routes.turns(switch, target)):
                yield from ((2 * cable + UP, spine) for cable in clos.trunks[switch, spine])
        elif tier == 1:
            downs = clos.above.get(target, ())
            for core in clos.above.get(switch, ()):
                if any((down, core) in clos.trunks for down in downs):
                    yield from ((2 * cable + UP, core) for cable in clos.trunks[switch, core])
        else:
            for down in clos.above.get(target, ()):
                yield from ((2 * cable + DOWN, down) for cable in clos.trunks.get((down, switch), ()))

    def _tables(self) -> None:
        width = max(map(len, self._choices), default=1) or 1
        self._counts = np.array([len(each) for each in self._choices], dtype=np.int64)
        self._links = np.full((len(self._choices), width), -1, dtype=np.int64)
        self._next = np.zeros((len(self._choices), width), dtype=np.int64)
        for state, choices in enumerate(self._choices):
            for place, (link, after) in enumerate(choices):
                self._links[state, place], self._next[state, place] = link, after
        seeds = [_seed(name) for name in self.traffic.clos.names]
        self._salt = np.array([seeds[switch] for switch in self._switch], dtype=np.uint64)

    def sent(self, sources: Ints, targets: Ints, ports: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the ports by which each packet leaves and arrives, and the links of its path, then -1."""
        tuples = mix64(mix64(self._addresses[sources] ^ mix64(self._addresses[targets])) ^ ports.astype(np.uint64))
        out = (mix64(tuples ^ np.uint64(1)) % self._ports[sources].astype(np.uint64)).astype(np.int64)
        into = (mix64(tuples ^ np.uint64(2)) % self._ports[targets].astype(np.uint64)).astype(np.int64)
        nics = self.traffic.nics
        states = np.array(
            [
                self._starts[nics[one].leaves[i], nics[other].leaves[j]]
                for one, other, i, j in zip(
                    sources.tolist(), targets.tolist(), out.tolist(), into.tolist(), strict=True
                )
            ],
            dtype=np.int64,
        )
        links = np.full((len(ports), MAX_HOPS), -1, dtype=np.int64)
        for hop in range(MAX_HOPS):
            counts = self._counts[states]
            on = counts > 0
            pick = (mix64(tuples ^ self._salt[states]) % np.maximum(counts, 1).astype(np.uint64)).astype(np.int64)
            links[on, hop] = self._links[states, pick][on]
            states = np.where(on, self._next[states, pick], states)
        return out, into, links


def columns(traffic: Traffic, flows: Sequence[int]) -> tuple[Ints, Ints]:
    return (
        np.array([traffic.flows[flow].source for flow in flows], dtype=np.int64),
        np.array([traffic.flows[flow].target for flow in flows], dtype=np.int64),
    )


def planned_columns(traffic: Traffic, paths: Mapping[Part, Path], parts: Sequence[Part]) -> tuple[Ints, Ints, Ints]:
    """Return the ports and the links of planned connections, as `Fabric.sent` returns those of packets."""
    flows, nics = [traffic.flows[part.flow] for part in parts], traffic.nics
    out = [part.index % len(nics[flow.source].leaves) for part, flow in zip(parts, flows, strict=True)]
    into = [part.index % len(nics[flow.target].leaves) for part, flow in zip(parts, flows, strict=True)]
    links = np.array([[*paths[part], *[-1] * (MAX_HOPS - len(paths[part]))] for part in parts], dtype=np.int64)
    return np.array(out, dtype=np.int64), np.array(into, dtype=np.int64), links.reshape(len(parts), -1)
