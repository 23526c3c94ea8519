"""A page about a stopped job: the diagnoses, which rank waits for which as a picture, and each unfinished operation."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from faults.diagnosis import Diagnosis
from faults.hangs import DumpFindings, Wait, findings_of_dumps
from faults.job_state import JobState
from faults.readers import Recording

MAX_ROWS: Final = 1000  # of the table
MAX_BOXES: Final = 12  # in a column of the picture
MAX_LINES: Final = 4  # in a box
MAX_RANKS: Final = 12  # in a line
BOX_W: Final = 440
GAP_W: Final = 90
LINE_H: Final = 18
GAP_H: Final = 22

STYLE: Final = """
:root { color-scheme: light dark; --fg: #1f2328; --bg: #fff; --box: #f6f8fa; --line: #8c959f; --bad: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e6edf3; --bg: #0d1117; --box: #161b22; --line: #6e7681; --bad: #ff7b72; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); margin: 2rem; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.picture { overflow-x: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--fg); }
svg .title { font-weight: 600; }
svg rect { fill: var(--box); stroke: var(--line); }
svg .cause rect { stroke: var(--bad); stroke-width: 2; }
svg path { fill: none; stroke: var(--line); stroke-width: 1.5; }
"""


@dataclass(frozen=True, slots=True)
class Box:
    title: str
    lines: tuple[str, ...]
    ranks: frozenset[int]  # that wait in it, or the cause
    absent: frozenset[int]  # that these wait for
    is_cause: bool = False

    @property
    def height(self) -> int:
        return LINE_H * (len(self.lines) + 1) + 14


def wait_page(recording: Recording, diagnoses: Sequence[Diagnosis], *, name: str) -> str:
    """Return a page that needs no other file."""
    state = JobState(recording.job)
    for observation in recording.observations:
        state.observe(observation)
    found = findings_of_dumps(state)
    parts = [
        f"<h1>{escape(name)}</h1>",
        "<h2>Diagnoses</h2>",
        _list([each.reason for each in diagnoses], none="No fault was found."),
        *(["<h2>Further findings</h2>", _list(recording.notes, none="")] if recording.notes else []),
        "<h2>Who waits for whom</h2>",
        f'<div class="picture">{_picture(found)}</div>' if found.waits else f"<p>{_without_waits(state)}</p>",
        *(_table(found.waits) if found.waits else ()),
    ]
    head = f'<meta charset="utf-8"><title>{escape(name)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _without_waits(state: JobState) -> str:
    if not state.dumped:
        return "The recording has no Flight Recorder dump and no counts of NCCL RAS that differ."
    return "No rank waits in an operation."


def columns(found: DumpFindings) -> list[list[Box]]:
    """Return the boxes of the picture: the causes, the operations that wait for these, those that wait for them, ..."""
    causes = {cause.rank for cause in found.causes}
    described = [
        Box(f"rank {cause.rank}", (cause.reason.value.replace("-", " "),), frozenset({cause.rank}), frozenset(), True)
        for cause in found.causes
    ]
    levels = [described] if described else []
    reached, left = set(causes), list(found.waits)
    while left:
        ready = [wait for wait in left if not reached.isdisjoint(_absent(wait, causes))]
        if not ready:  # their cause is unknown
            ready = left
        levels.append(list(_boxes(ready, causes)))
        reached = {rank for wait in ready for rank in wait.waiting}
        kept = {id(wait) for wait in ready}
        left = [wait for wait in left if id(wait) not in kept]
    return levels


def _absent(wait: Wait, causes: set[int]) -> set[int]:
    """Return the ranks that the operation waits for: also a cause that called it and is stuck in it."""
    return {*wait.missing, *wait.silent} | (causes.intersection(wait.waiting))


def _boxes(waits: Iterable[Wait], causes: set[int]) -> Iterator[Box]:
    """Return one box for each kind of group and operation, the one with the most ranks first."""
    kinds: dict[tuple[str, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        kinds[wait.description or wait.group, wait.op].append(wait)
    in_order = sorted(kinds.items(), key=lambda each: -sum(len(wait.waiting) for wait in each[1]))
    for (group, op), same in in_order[:MAX_BOXES]:
        lines = [_line(wait, causes) for wait in same[:MAX_LINES]]
        if len(same) > MAX_LINES:
            lines.append(f"and {len(same) - MAX_LINES} more groups or operations")
        ranks = frozenset(rank for wait in same for rank in wait.waiting if rank not in causes)
        absent = frozenset(rank for wait in same for rank in _absent(wait, causes))
        yield Box(f"{group}: {op}", tuple(lines), ranks, absent)
    if len(in_order) > MAX_BOXES:
        yield Box(f"and {len(in_order) - MAX_BOXES} more kinds of operation", (), frozenset(), frozenset())


def _line(wait: Wait, causes: set[int]) -> str:
    waiting = [rank for rank in wait.waiting if rank not in causes]
    absent = sorted(_absent(wait, causes))
    if wait.finished:
        return f"{_ranks(wait.waiting)} did not finish, {_ranks(wait.finished)} did"
    verb, have = ("waits", "has") if len(waiting) == 1 else ("wait", "have")
    pair = f" ({wait.group.rpartition(' ')[2]})" if wait.is_pair else ""
    if not absent:
        return f"{_ranks(waiting)} {have} called it{pair}"
    return f"{_ranks(waiting)} {verb} for {_ranks(absent)}{pair}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MAX_RANKS]))
    return f"{shown}, ... ({len(ranks)})" if len(ranks) > MAX_RANKS else shown or "none"


def _picture(found: DumpFindings) -> str:
    levels = columns(found)
    places: dict[int, tuple[int, int, Box]] = {}  # by the box's identity
    parts = []
    height = 0
    for column, boxes in enumerate(levels):
        x, y = column * (BOX_W + GAP_W), 8
        for box in boxes:
            places[id(box)] = x, y, box
            parts.append(_drawn(box, x, y))
            y += box.height + GAP_H
        height = max(height, y)
    width = len(levels) * (BOX_W + GAP_W) - GAP_W + 2
    arrows = _arrows(levels, places)
    marker = (
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8"/></marker></defs>'
    )
    label = "At the left the causes, then the operations that wait for them, then those that wait for these"
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" viewBox="-1 0 {width} {height}">'
        f"{marker}{''.join(arrows)}{''.join(parts)}</svg>"
    )


def _arrows(levels: Sequence[Sequence[Box]], places: Mapping[int, tuple[int, int, Box]]) -> Iterator[str]:
    for nearer, further in pairwise(levels):
        for box in further:
            for target in nearer:
                if box.absent.isdisjoint(target.ranks):
                    continue
                (from_x, from_y, _), (to_x, to_y, _) = places[id(box)], places[id(target)]
                start, end = from_x, to_x + BOX_W + 2
                y1, y2, middle = from_y + box.height / 2, to_y + target.height / 2, (start + end) / 2
                yield (
                    f'<path d="M{start} {y1:g} C{middle:g} {y1:g} {middle:g} {y2:g} {end} {y2:g}" '
                    'marker-end="url(#end)"/>'
                )


def _drawn(box: Box, x: int, y: int) -> str:
    lines = "".join(
        f'<text class="{"line" if index else "title"}" x="{x + 10}" y="{y + 20 + LINE_H * index}">'
        f"{escape(_cut(line))}</text>"
        for index, line in enumerate((box.title, *box.lines))
    )
    kind = ' class="cause"' if box.is_cause else ""
    full = escape("\n".join((box.title, *box.lines)))
    return (
        f'<g{kind}><title>{full}</title><rect x="{x}" y="{y}" width="{BOX_W}" height="{box.height}" rx="6"/>{lines}</g>'
    )


def _cut(line: str, characters: int = 62) -> str:
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _list(lines: Sequence[str], *, none: str) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else f"<p>{none}</p>"


def _table(waits: Sequence[Wait]) -> Iterator[str]:
    heads = ("group", "name", "operation", "number", "waiting", "not called by", "no dump of", "finished by")
    rows = (
        (
            wait.description,
            wait.group,
            wait.op,
            str(wait.seq),
            *map(_ranks, (wait.waiting, wait.missing, wait.silent, wait.finished)),
        )
        for wait in waits[:MAX_ROWS]
    )
    yield f"<h2>Unfinished operations ({len(waits):,})</h2><table><thead><tr>"
    yield "".join(f'<th scope="col">{head}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>"
    yield "</tbody></table>"
    if len(waits) > MAX_ROWS:
        yield f"<p>The first {MAX_ROWS:,} are listed.</p>"
