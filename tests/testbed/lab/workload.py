"""Describes the work of the ranks and their internal faults: the driver writes it, the ranks read it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

Inside = Literal["delay", "hang", "imbalance", "pause"]
LibraryName = Literal["own", "gloo"]
PLAN = "plan.json"  # its name in the notes folder of a run; recordings do not contain it


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Describes a fault in a rank's own code, from `at_s` after the start."""

    what: Inside
    at_s: float
    until_s: float | None = None
    rank: int | None = None  # None: every rank
    ms: float = 0.0  # longer computing each step (delay), once (pause), or the scale of a random share (imbalance)

    def concerns(self, rank: int, now_s: float) -> bool:
        ended = self.until_s is not None and now_s >= self.until_s
        return self.rank in (None, rank) and now_s >= self.at_s and not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Describes one step: compute, all-reduce, all-to-all, ring pass."""

    ranks: int
    duration_s: float
    library: LibraryName = "own"
    compute_ms: float = 30.0
    compute_sd_ms: float = 3.0
    all_reduce_bytes: int = 1 << 20
    all_to_all_bytes: int = 32 << 10  # to each peer
    pass_bytes: int = 128 << 10  # 0: the job passes nothing from rank to rank
    seed: int = 0
    inner: tuple[Inner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Holds a workload and where it runs."""

    workload: Workload
    addresses: tuple[str, ...]
    namespaces: tuple[str, ...]
    records: str  # the folder for the records of the ranks
    outlets: tuple[str, ...] = ()  # the sink of each rank's records, if not that folder

    def sink(self, rank: int) -> str:
        """Return the sink option of `fleetwright.collectives`."""
        return self.outlets[rank] if self.outlets else self.records

    def write(self, folder: Path) -> None:
        (folder / PLAN).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self:
        document = json.loads((folder / PLAN).read_text())
        inner = tuple(Inner(**event) for event in document["workload"].pop("inner"))
        return cls(
            workload=Workload(**document["workload"], inner=inner),
            addresses=tuple(document["addresses"]),
            namespaces=tuple(document["namespaces"]),
            records=document["records"],
            outlets=tuple(document.get("outlets", ())),
        )
