"""Describes the work of the ranks and their internal faults: the driver writes it, the ranks read it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

Inside = Literal["delay", "hang", "imbalance", "pause"]
LibraryName = Literal["own", "gloo"]
PLAN = "plan.json"  # its name in a lab's folder of notes; no recording holds it


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
    records: str  # the folder for what the ranks record
    outlets: tuple[str, ...] = ()  # where each rank's own records go, if not into that folder

    def sink(self, rank: int) -> str:
        """Return the sink option of `fleetwright.collectives`."""
        return self.outlets[rank] if self.outlets else self.records

    def write(self, folder: Path) -> None:
        (folder / PLAN).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self:
        said = json.loads((folder / PLAN).read_text())
        inner = tuple(Inner(**event) for event in said["workload"].pop("inner"))
        return cls(
            workload=Workload(**said["workload"], inner=inner),
            addresses=tuple(said["addresses"]),
            namespaces=tuple(said["namespaces"]),
            records=said["records"],
            outlets=tuple(said.get("outlets", ())),
        )
