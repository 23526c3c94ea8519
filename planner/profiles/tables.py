"""A table of highest rates per bucket from measured points, and its merge with a predicted table.

A bucket stands for its upper edges, so its cell is the rate at that size.  A cell with a basis in measurements takes
that rate.  A cell without takes the computed rate, clipped to the measured bounds: at least the rate that a larger
size sustained, at most the rate at which a smaller one failed.  Runs scaled from a smaller size are a worst case, so a
computed rate takes precedence over them, but not below them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf

from fleet.documents import RuleError, Violation
from fleet.sizes.histogram import Bucket, SizeBuckets
from fleet.slo import Slo
from planner.profiles.interpolation import Basis, Cell, Size, at_size, grouped
from planner.profiles.load_curves import SustainedRate, held, missing
from planner.profiles.points import MeasuredPoint
from planner.throughput import Throughput, ThroughputSource

SOURCES_SHOWN = 3
MEASURED = {Basis.MEASURED, Basis.INTERPOLATED, Basis.LARGER}


@dataclass(frozen=True, slots=True)
class Evidence:
    points: int
    sizes: int
    first: date | None
    last: date | None
    sources: tuple[str, ...]
    closed_loop: bool  # only runs with a fixed number in flight, which show no bursts

    def __str__(self) -> str:
        dates = (
            "undated"
            if self.last is None
            else f"{self.first} to {self.last}"
            if self.first != self.last
            else f"{self.last}"
        )
        more = f" and {len(self.sources) - SOURCES_SHOWN} more" if len(self.sources) > SOURCES_SHOWN else ""
        loop = ", all with a fixed number of requests in flight" if self.closed_loop else ""
        shown = ", ".join(self.sources[:SOURCES_SHOWN])
        sizes = f"{self.sizes} size{'s' * (self.sizes > 1)}"
        return f"{self.points} measured runs at {sizes}, {dates}, from {shown}{more}{loop}"


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """The highest rate per bucket, row per input edge, column per output edge, each with its basis."""

    cells: tuple[tuple[Cell, ...], ...]
    evidence: Evidence


def throughput_from_points(points: Iterable[MeasuredPoint], *, buckets: SizeBuckets, slo: Slo) -> MeasuredTable:
    """The table of one configuration.  RuleError without points, or with points of several configurations."""
    known = tuple(points)
    RuleError.raise_for(_violations(known))
    sweeps = {size: sweep for size, group in grouped(known).items() if (sweep := held(group, slo)) is not None}
    rows: list[list[Cell]] = [[] for _ in buckets.input_tokens]
    for bucket in buckets.buckets():
        rows[bucket.row].append(_cell(bucket, sweeps, known, slo))
    return MeasuredTable(tuple(map(tuple, rows)), _evidence(known, sweeps))


def merged(table: MeasuredTable, *, buckets: SizeBuckets, computed: Throughput) -> Throughput:
    """One table of both: measurements take precedence and bound the computed rates."""
    rates = tuple(
        tuple(_rate(cell, computed.max_rps[r][c]) for c, cell in enumerate(row)) for r, row in enumerate(table.cells)
    )
    share = min(sum(b.share for b in buckets.buckets() if table.cells[b.row][b.column].basis in MEASURED), 1.0)
    whole = share > 1 - 1e-9
    mixed = ThroughputSource.MEASURED_AND_CALIBRATED if share > 0 else computed.provenance
    rest = "" if share >= 1 else f"; {1 - share:.0%} of requests are of sizes left to the roofline"
    return Throughput(
        max_rps=rates,
        provenance=ThroughputSource.MEASURED if whole else mixed,
        interval_90=_interval(table, buckets, computed.interval_90, whole=whole),
        interval_note=f"{table.evidence}; {_coverage(table)}{rest}",
    )


def _rate(cell: Cell, computed_rps: float) -> float:
    """A scaled rate is a worst case, so it only bounds a computed one."""
    return cell.max_rps if cell.basis in MEASURED else cell.between(computed_rps)


def _cell(bucket: Bucket, sweeps: Mapping[Size, SustainedRate], points: Sequence[MeasuredPoint], slo: Slo) -> Cell:
    if not sweeps:
        return Cell(0.0, 0.0, inf, Basis.NONE, missing(points, slo))
    size, lower = (float(bucket.edge[0]), float(bucket.edge[1])), (float(bucket.lower[0]), float(bucket.lower[1]))
    return at_size(size, lower=lower, sweeps=sweeps, slo=slo)


def _interval(
    table: MeasuredTable, buckets: SizeBuckets, computed: tuple[float, float] | None, *, whole: bool
) -> tuple[float, float] | None:
    """The widest interval of all buckets with requests, which holds for each of them."""
    known = [
        (cell.low_rps / cell.max_rps, cell.high_rps / cell.max_rps)
        for bucket in buckets.buckets()
        if bucket.share > 0 and (cell := table.cells[bucket.row][bucket.column]).max_rps > 0
    ]
    if not whole:
        if computed is None:
            return None
        known.append(computed)
    # A sweep that never failed has only a lower bound: the upper one is the largest of any other bucket.
    finite = [high for _, high in known if high < inf]
    return (min(low for low, _ in known), max([1.0, *finite])) if known else None


def _coverage(table: MeasuredTable) -> str:
    bases = [cell.basis for row in table.cells for cell in row]
    covered = len(bases) - bases.count(Basis.NONE)
    counts = (f"{bases.count(basis)} {basis}" for basis in Basis if basis in bases and basis is not Basis.NONE)
    return f"{covered} of {len(bases)} buckets covered" + (f" ({', '.join(counts)})" if covered else "")


def _evidence(points: Sequence[MeasuredPoint], sweeps: Mapping[Size, SustainedRate]) -> Evidence:
    dates = sorted(point.date for point in points if point.date is not None)
    return Evidence(
        points=len(points),
        sizes=len(grouped(points)),
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
        sources=tuple(dict.fromkeys(point.source for point in points)),
        closed_loop=bool(sweeps) and not any(sweep.open_loop for sweep in sweeps.values()),
    )


def _violations(points: Sequence[MeasuredPoint]) -> Iterator[Violation]:
    if not points:
        yield (), "there are no points, expected at least one"
    for number, point in enumerate(points):
        if point.configuration != points[0].configuration:
            yield (number,), f"is of {point.configuration}, expected all of {points[0].configuration}"
            return
