"""A topology from the labels of a running cluster: the result of `ray.nodes()`, or Kubernetes Node objects as dicts.

Discovery guesses nothing: it reports a level without labels as unknown.  Labels that contradict each other (one rack in
two rows, one row in two sites) are an error, because a wrong power tree is worse than none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fleet.documents import dotted, validation_problems
from fleet.errors import DocumentError, Problem, UnknownNameError
from fleet.topology.document import Topology
from fleet.topology.elements import MAX_RAILS, Node, PowerDomain, PowerKind, Site, Switch, Tier
from fleet.topology.labels import LabelNames, Machine, first_set, kubernetes_machines, ray_machines

UNKNOWN_SITE = "unknown"
POWER_LEVELS = tuple(PowerKind)

GpuNamer = Callable[[str], str]  # maps a label to the catalogue's name; raises UnknownNameError


@dataclass(frozen=True, slots=True)
class Unknown:
    """A property that the labels of some nodes do not state."""

    subject: str
    reason: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.nodes[:5]) + (f" and {len(self.nodes) - 5} more" if len(self.nodes) > 5 else "")
        return f"{self.subject} unknown for {shown}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The topology that the labels state, and the gaps."""

    topology: Topology
    unknown: tuple[Unknown, ...]


def topology_from_ray_nodes(
    nodes: Sequence[Mapping[str, Any]], *, labels: LabelNames | None = None, gpu_namer: GpuNamer = str
) -> Discovery:
    """From the dicts of `ray.nodes()`.  A node's name is its label, else its NodeID."""
    names = labels or LabelNames()
    return _discover(ray_machines(nodes, names), names, gpu_namer, source="labels of the Ray cluster")


def topology_from_kubernetes_nodes(
    nodes: Sequence[Mapping[str, Any]], *, labels: LabelNames | None = None, gpu_namer: GpuNamer = str
) -> Discovery:
    """From Node objects of the Kubernetes API as dicts (labels, `status.capacity`)."""
    names = labels or LabelNames()
    return _discover(kubernetes_machines(nodes, names), names, gpu_namer, source="labels of the Kubernetes cluster")


def _discover(machines: Iterable[Machine], names: LabelNames, gpu_namer: GpuNamer, *, source: str) -> Discovery:
    assembly = _Assembly(names, gpu_namer)
    for machine in machines:
        with _label_errors(source, f"node {machine.name}", dotted(machine.path)):
            assembly.add(machine)
    with _label_errors(source, "topology", "nodes"):
        sites = assembly.sites()
        if assembly.contradictions:
            raise DocumentError(name=source, problems=assembly.contradictions)
        topology = Topology(sites=sites)
    unknown = tuple(Unknown(subject, reason, tuple(nodes)) for (subject, reason), nodes in assembly.unknown.items())
    return Discovery(topology=topology, unknown=unknown)


@contextmanager
def _label_errors(source: str, subject: str, place: str) -> Iterator[None]:
    """Report values that no element may have as errors of the labels."""
    try:
        yield
    except ValidationError as error:
        found = validation_problems(error)
        problems = [Problem(place, f"{subject}: {dotted(path)}: {message}") for path, message in found]
        raise DocumentError(name=source, problems=problems) from error


@dataclass(frozen=True, slots=True)
class Claim:
    """One element that labels name: its kind, and per level above it the parent and the node that stated it."""

    name: str
    kind: str
    by: Machine
    above: dict[str, tuple[str, Machine]] = field(default_factory=dict)
    uplinks: dict[str, None] = field(default_factory=dict)

    def nearest(self, levels: Sequence[str]) -> str | None:
        """The parent on the lowest of these levels, given from the top down."""
        return next((self.above[level][0] for level in reversed(levels) if level in self.above), None)


class Claims:
    """Claims by name, and their contradictions."""

    def __init__(self) -> None:
        self.contradictions: list[Problem] = []
        self._by_name: dict[str, Claim] = {}

    def put(self, kind: str, name: str, *, above: Sequence[tuple[str, str]], machine: Machine) -> Claim:
        """Record that a node names this element and its parents, as (level, name)."""
        claim = self._by_name.setdefault(name, Claim(name, kind, machine))
        if claim.kind != kind:
            self._contradict(machine, f"{name!r} is a {kind} here and a {claim.kind} on {claim.by.name}")
        for level, upper in above:
            self._agree(claim, level, upper, machine)
        return claim

    def pass_up(self, levels: Sequence[str]) -> None:
        """A rack in row a and on PDU p puts row a on PDU p, whichever node stated either."""
        for level in reversed(levels):
            for claim in [claim for claim in self._by_name.values() if claim.kind == level]:
                nearest = claim.nearest(levels)
                for above, (upper, by) in claim.above.items():
                    if nearest not in (None, upper):
                        self._agree(self._by_name[nearest], above, upper, by)

    def of_site(self, site: str) -> Iterator[Claim]:
        """The claims about elements of one site, in the order of the first claim."""
        return (claim for claim in self._by_name.values() if claim.above["site"][0] == site)

    def _agree(self, claim: Claim, level: str, upper: str, machine: Machine) -> None:
        stated, by = claim.above.setdefault(level, (upper, machine))
        if stated != upper:
            where = f"{claim.kind} {claim.name!r} is in {level} {upper!r} here and in {level} {stated!r} on {by.name}"
            self._contradict(machine, where)

    def _contradict(self, machine: Machine, message: str) -> None:
        self.contradictions.append(Problem(dotted(machine.path), f"node {machine.name}: {message}"))


class _Assembly:
    def __init__(self, names: LabelNames, gpu_namer: GpuNamer) -> None:
        self.unknown: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._names = names
        self._gpu_namer = gpu_namer
        self._domains = Claims()
        self._switches = Claims()
        self._machines: dict[str, list[Machine]] = defaultdict(list)
        self._nodes: dict[str, list[Node]] = defaultdict(list)

    def add(self, machine: Machine) -> None:
        site = self._site_of(machine)
        self._machines[site].append(machine)
        node = Node(
            name=machine.name,
            power_domain=self._power_domain(machine, site),
            leaves=self._leaves(machine, site),
            gpu=self._gpu(machine),
            gpus=machine.gpus,
            scale_up_domain=first_set(machine.labels, self._names.scale_up),
        )
        self._nodes[site].append(node)

    def sites(self) -> tuple[Site, ...]:
        """The document, without contradictory elements."""
        self._domains.pass_up(POWER_LEVELS)
        return tuple(
            Site(
                name=name,
                region=self._common("region", self._names.region, machines),
                zone=self._common("zone", self._names.zone, machines),
                power=tuple(
                    PowerDomain(name=claim.name, kind=PowerKind(claim.kind), parent=claim.nearest(POWER_LEVELS))
                    for claim in self._domains.of_site(name)
                ),
                network=tuple(
                    Switch(name=claim.name, tier=Tier(claim.kind), uplinks=tuple(claim.uplinks))
                    for claim in self._switches.of_site(name)
                ),
                nodes=tuple(self._nodes[name]),
            )
            for name, machines in self._machines.items()
        )

    @property
    def contradictions(self) -> list[Problem]:
        return [*self._domains.contradictions, *self._switches.contradictions]

    def _site_of(self, machine: Machine) -> str:
        labels = (*self._names.site, *self._names.zone, *self._names.region)
        return self._labelled(machine, "site", labels) or UNKNOWN_SITE

    def _power_domain(self, machine: Machine, site: str) -> str | None:
        """Record the chain of domains in the labels, and return the lowest."""
        above = [("site", site)]
        for kind in PowerKind:
            name = self._labelled(machine, kind, getattr(self._names, kind))
            if name is not None:
                self._domains.put(kind, name, above=above, machine=machine)
                above.append((kind, name))
        return above[-1][1] if len(above) > 1 else None

    def _leaves(self, machine: Machine, site: str) -> tuple[str, ...]:
        """Record the switches in the labels, and return the leaf of each rail."""
        leaves = self._leaf_names(machine)
        if not leaves:
            return ()
        spine = self._labelled(machine, "spine", self._names.spine)
        core = first_set(machine.labels, self._names.core) if spine else None
        upwards = [(Tier.LEAF, leaf, spine) for leaf in leaves]
        if spine:
            upwards.append((Tier.SPINE, spine, core))
        if core:
            upwards.append((Tier.CORE, core, None))
        for tier, name, uplink in upwards:
            claim = self._switches.put(tier, name, above=[("site", site)], machine=machine)
            if uplink:
                claim.uplinks[uplink] = None
        return leaves

    def _leaf_names(self, machine: Machine) -> tuple[str, ...]:
        by_rail = [machine.labels.get(f"{self._names.leaf_of_rail}{rail}") for rail in range(MAX_RAILS)]
        leaves = tuple(name for name in by_rail if name)
        if not leaves:
            leaf = self._labelled(machine, "leaf", self._names.leaf)
            return (leaf,) if leaf else ()
        if leaves != tuple(by_rail[: len(leaves)]):
            reason = f"{self._names.leaf_of_rail}* is not set for every rail from 0 up"
            self.unknown["leaf", reason].append(machine.name)
            return ()
        return leaves

    def _gpu(self, machine: Machine) -> str | None:
        if machine.gpus == 0:
            return None
        if machine.gpu_label is None:
            self.unknown["gpu", _none_set(self._names.gpu)].append(machine.name)
            return None
        try:
            return self._gpu_namer(machine.gpu_label)
        except UnknownNameError as error:
            self.unknown["gpu", str(error)].append(machine.name)
            return None

    def _labelled(self, machine: Machine, subject: str, names: tuple[str, ...]) -> str | None:
        value = first_set(machine.labels, names)
        if value is None:
            self.unknown[subject, _none_set(names)].append(machine.name)
        return value

    def _common(self, subject: str, names: tuple[str, ...], machines: Sequence[Machine]) -> str | None:
        """The one value of all nodes of a site that have the label."""
        values = sorted({value for machine in machines if (value := first_set(machine.labels, names))})
        if len(values) > 1:
            reason = f"the nodes of the site name several: {', '.join(values)}"
            self.unknown[subject, reason].extend(machine.name for machine in machines)
        return values[0] if len(values) == 1 else None


def _none_set(names: Iterable[str]) -> str:
    return f"none of the labels {', '.join(names)} is set"
