"""The power domains and switches that node labels state, and their contradictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fleet.documents import dotted
from fleet.errors import Problem
from fleet.topology.node_sources import Machine


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
