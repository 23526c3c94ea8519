"""Hangs: from what is known of a job that stands still to the one who keeps it.

The strongest evidence speaks first: a process that does not run, then bytes that are lost on their way, then who never
came.  What one kind explains the next does not look at, since everybody waits for the same cause in the end.
"""

from faults.diagnosis import Verdict
from faults.hangs.diagnoses import of_cut, of_dumps, of_frozen, of_laggard, of_nowhere, of_silence
from faults.hangs.frozen import Frozen, frozen
from faults.hangs.link_cuts import CutLink, CutNode, cuts, placed, undecided
from faults.hangs.missing_ranks import Graph, graph_of, waiters, waits_since_s
from faults.hangs.settings import HangSettings
from faults.hangs.stall import Standstill, standstill
from faults.job_state import Ledger
from faults.job_state.ranks import ALIVE_PHASES

PATIENT = 10.0  # times as patient with a rank that says it does something else: a checkpoint, an evaluation


def hangs(ledger: Ledger, settings: HangSettings, *, now_s: float) -> tuple[Verdict, ...]:
    """The hangs that are believed now."""
    still = standstill(ledger, settings, now_s=now_s)
    if still is None:
        return _of_dumps(ledger, now_s=now_s)
    if still.seen_s < max(settings.cut_still_s, settings.still_steps * still.step_s):
        return ()
    dead = frozen(ledger, settings, still, now_s=now_s)
    apart = _cut(ledger, settings, still, dead)
    if dead or apart:
        return (
            *(of_frozen(each, still, ledger, now_s=now_s) for each in dead),
            *(of_cut(each, still, now_s=now_s) for each in apart),
        )
    return _late(ledger, settings, still, now_s=now_s)


def _cut(ledger: Ledger, settings: HangSettings, still: Standstill, dead: list[Frozen]) -> list[CutNode | CutLink]:
    """Cuts that no frozen process explains: its full buffers stop its peers too."""
    found = cuts(ledger, settings, since_s=still.since_s)
    nodes = {each.node for each in dead}
    found = {ends: cut for ends, cut in found.items() if not nodes.intersection(ends)}
    apart = placed(found, ledger, since_s=still.since_s)
    if any(isinstance(each, CutLink) for each in apart) and undecided(found, ledger, since_s=still.since_s):
        return [each for each in apart if isinstance(each, CutNode)]
    return apart


def _late(ledger: Ledger, settings: HangSettings, still: Standstill, *, now_s: float) -> tuple[Verdict, ...]:
    patience_s = max(settings.own_code_s, settings.still_steps * still.step_s)
    patience_s = max(patience_s, settings.own_code_late * ledger.pace.latest_s())
    if still.seen_s < patience_s:
        return ()
    graph = graph_of(ledger, since_s=still.since_s)
    if graph is None or not graph.waits.still:
        return ()
    waiting = waiters(graph)
    named = [
        of_laggard(
            rank,
            ledger,
            still,
            waiting=waiting,
            sure=graph.reporting,
            isolate=still.seen_s >= max(settings.own_code_isolate_s, 2 * patience_s) and graph.reporting,
            onset_s=waits_since_s(graph, still),
            now_s=now_s,
        )
        for rank in graph.waits.laggards.tolist()
        if _speaks(ledger, settings, still, rank, patience_s=patience_s)
    ]
    return tuple(named) or _unnamed(ledger, settings, still, graph, now_s=now_s)


def _speaks(ledger: Ledger, settings: HangSettings, still: Standstill, index: int, *, patience_s: float) -> bool:
    """Whether the rank itself has said, all through the standstill, that it is not there yet."""
    rank = ledger.ranks[index]
    needed_s = patience_s if rank.phase in ALIVE_PHASES or not rank.phase else PATIENT * patience_s
    beats = rank.beat_s is None or rank.beats_since_entered >= settings.own_code_beats
    return beats and still.seen_s >= needed_s


def _unnamed(
    ledger: Ledger, settings: HangSettings, still: Standstill, graph: Graph, *, now_s: float
) -> tuple[Verdict, ...]:
    if still.seen_s < settings.nowhere_s:
        return ()
    silent = graph.waits.silent.tolist()
    if len(silent) == 1:
        return (of_silence(silent[0], ledger, still, now_s=now_s),)
    if silent or graph.waits.stuck.any():
        return (of_nowhere(still, waiting=waiters(graph), now_s=now_s),)
    return ()


def _of_dumps(ledger: Ledger, *, now_s: float) -> tuple[Verdict, ...]:
    """Flight recorders and nothing else: they were dumped because nothing moved."""
    if ledger.progress_s is not None or ledger.pairs or any(rank.beat_s is not None for rank in ledger.ranks):
        return ()
    graph = graph_of(ledger, since_s=-float("inf"))
    if graph is None or not graph.waits.still:
        return ()
    onset_s = min(
        (
            pending.since_s
            for group in graph.groups
            for pending in group.pending.values()
            if pending.since_s is not None
        ),
        default=now_s,
    )
    return tuple(
        of_dumps(rank, ledger, waiting=waiters(graph), complete=graph.reporting, onset_s=onset_s, now_s=now_s)
        for rank in graph.waits.laggards.tolist()
    )
