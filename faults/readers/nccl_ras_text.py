"""The text of NCCL RAS: the operations that ranks have launched, where they differ, and the ranks without data.

RAS lists ranks only where a communicator has a defect: of several counts, the ranks of the rarer ones, each with its
host.  All others have the common count.  Formats: the RAS page of NCCL's user guide, 2.24 to 2.30.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from faults.observations import Observation, OperationCounts
from faults.readers.job_map import JobMap
from faults.readers.nccl_ras import SOURCE
from faults.readers.parse_errors import MalformedError, ParseErrors

HEADING = b"in group  per comm"
_TABLE_ROW = re.compile(r"^ *\d+ +\d+ +\d+ +[\d-]+ +(?:\d{1,7}-)?(?P<ranks>\d{1,7}) +\d+ +[A-Z]+ +[A-Z]+ *$")
_COMMUNICATOR = re.compile(r"^#\d+-\d+ \((?P<hash>[0-9a-fx:]{1,64})\) [A-Z]+")
_COUNT = re.compile(r"^ *(?P<ranks>\d{1,7}) ranks? ha(?:s|ve) launched up to (?:\w+ )?operation (?P<seq>\d{1,18})")
_RANK = re.compile(r"^ *Rank (?P<rank>\d{1,7}) -- GPU \S+ managed by process \d+ on node (?P<host>\S{1,253})")
_MISSING = re.compile(r"^ *(?:The m|M)issing ranks?: (?P<ranks>\d[\d, ]{0,9999})")


@dataclass(slots=True)
class _Communicator:
    name: str
    counts: list[tuple[int, int]] = field(default_factory=list)  # number of ranks, operation
    listed: dict[int, int] = field(default_factory=dict)  # operation by rank
    hosts: dict[int, str] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(ranks for ranks, _ in self.counts)


@dataclass(frozen=True, slots=True)
class RasText:
    sizes: tuple[int, ...]  # of communicators
    communicators: tuple[_Communicator, ...]

    def observations(self, *, at_s: float, job_map: JobMap, tally: ParseErrors) -> Iterator[Observation]:
        """Return the counts in the communicators of all ranks; smaller ones number ranks differently."""
        for found in self._whole(job_map):
            with tally.skipping(SOURCE):
                yield from _counts(found, at_s=at_s, job_map=job_map)

    def hosts(self, job_map: JobMap) -> dict[int, str]:
        return {rank: host for found in self._whole(job_map) for rank, host in found.hosts.items()}

    def notes(self) -> Iterator[str]:
        for found in self.communicators:
            if found.missing:
                ranks = ", ".join(map(str, found.missing[:16])) + (", ..." if len(found.missing) > 16 else "")
                yield f"NCCL RAS has no data of rank {ranks} of communicator {found.name}"

    def _whole(self, job_map: JobMap) -> Iterator[_Communicator]:
        return (found for found in self.communicators if found.size == len(job_map.rank_node))


def parse_ras_text(data: bytes) -> RasText:
    """Parse the text of one or more status requests; of a communicator, the newest part counts."""
    sizes: list[int] = []
    found: dict[str, _Communicator] = {}
    current = _Communicator("")
    for line in data.decode(errors="replace").splitlines():
        if match := _TABLE_ROW.match(line):
            sizes.append(int(match["ranks"]))
        elif match := _COMMUNICATOR.match(line):
            current = found[match["hash"]] = _Communicator(match["hash"])
        elif match := _COUNT.match(line):
            current.counts.append((int(match["ranks"]), int(match["seq"])))
        elif match := _RANK.match(line):
            rank = int(match["rank"])
            current.hosts[rank] = match["host"]
            if current.counts:
                current.listed[rank] = current.counts[-1][1]
        elif match := _MISSING.match(line):
            current.missing += [int(each) for each in match["ranks"].replace(",", " ").split()]
    communicators = tuple(found.values())
    return RasText((*sizes, *(each.size for each in communicators)), communicators)


def _counts(found: _Communicator, *, at_s: float, job_map: JobMap) -> Iterator[Observation]:
    common = [seq for ranks, seq in found.counts if ranks > list(found.listed.values()).count(seq)]
    unlisted = set(range(found.size)) - found.listed.keys()
    if len(common) != bool(unlisted) or max(found.listed, default=0) >= found.size:
        raise MalformedError("counts without their ranks")
    counts = found.listed | {rank: seq for rank in unlisted for seq in common}
    for rank, seq in sorted(counts.items()):
        values = OperationCounts(found.name, found.size, (("operation", seq),), "ok")
        yield Observation(at_s, job_map.node(rank), values, rank=rank)
