"""Pools and failure domains: how many nodes each has, and how many of them take no work."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from faults.quarantine.inputs import Member

POOL, DOMAIN = "pool", "domain"

Group = tuple[str, str]  # kind, name


def groups_of(member: Member) -> Iterator[Group]:
    """Every group that lacks a node when this one goes."""
    yield POOL, member.pool
    for name in dict.fromkeys(member.domains):
        yield DOMAIN, name


class Groups:
    """Counted once a step, and kept as nodes go."""

    def __init__(self, members: Mapping[str, Member], out: AbstractSet[str], missing: Iterable[Member] = ()) -> None:
        self.size: Counter[Group] = Counter()
        self.lacking: Counter[Group] = Counter()
        for name, member in members.items():
            self._count(member, lacking=member.absent or name in out)
        for member in missing:
            self._count(member, lacking=True)

    def _count(self, member: Member, *, lacking: bool) -> None:
        for group in groups_of(member):
            self.size[group] += 1
            self.lacking[group] += lacking

    def went(self, member: Member) -> None:
        """One more is out."""
        for group in groups_of(member):
            self.lacking[group] += not member.absent
