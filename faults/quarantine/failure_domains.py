"""Size of each pool and failure domain, and the number of its nodes that are out of service."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from faults.quarantine.inputs import Member

POOL, DOMAIN = "pool", "domain"

Group = tuple[str, str]  # kind, name


def groups_of(member: Member) -> Iterator[Group]:
    """Iterate over every group that loses a node when this one leaves service."""
    yield POOL, member.pool
    for name in dict.fromkeys(member.domains):
        yield DOMAIN, name


class Groups:
    """Numbers of nodes per group: counted once per step, and updated as nodes leave service."""

    def __init__(self, members: Mapping[str, Member], out: AbstractSet[str], missing: Iterable[Member] = ()) -> None:
        self.size: Counter[Group] = Counter()
        self.out: Counter[Group] = Counter()
        for name, member in members.items():
            self._count(member, out=member.absent or name in out)
        for member in missing:
            self._count(member, out=True)

    def _count(self, member: Member, *, out: bool) -> None:
        for group in groups_of(member):
            self.size[group] += 1
            self.out[group] += out

    def remove(self, member: Member) -> None:
        for group in groups_of(member):
            self.out[group] += not member.absent
