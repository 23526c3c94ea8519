"""The hang detector: from the state of a stalled job to the cause.

The strongest evidence comes first: a process that does not run, then lost packets, then missing ranks.  A cause of one
kind ends the search, because all ranks wait for it in the end.
"""

from dataclasses import dataclass, replace

import numpy as np

from faults.diagnosis import Diagnosis
from faults.hangs.diagnoses import (
    of_cut,
    of_dumps,
    of_frozen,
    of_missing_rank,
    of_nowhere,
    of_silence,
    of_unexplained_dumps,
)
from faults.hangs.dumps import DumpFindings, find_causes
from faults.hangs.frozen import Frozen, frozen
from faults.hangs.link_cuts import CutLink, CutNode, cuts, placed, undecided
from faults.hangs.settings import HangSettings
from faults.hangs.stall import Stall, find_stall
from faults.hangs.wait_for_graph import Memberships, Waits, wait_for
from faults.job_state import GroupProgress, JobState
from faults.job_state.groups import PAIR, RAS_PREFIX
from faults.job_state.ranks import ALIVE_PHASES

PATIENT = 10.0  # factor on the limits of a rank in another phase, such as a checkpoint or an evaluation


@dataclass(frozen=True, slots=True)
class Graph:
    rows: Memberships
    waits: Waits
    groups: tuple[GroupProgress, ...]

    @property
    def reporting(self) -> bool:
        """Return whether every member of every stalled group has reported."""
        return not self.waits.uncertain.any()


def graph_of(state: JobState, *, since_s: float) -> Graph | None:
    """Return the graph of reports since this time; None if no rank counts operations."""
    groups = _groups(state)
    if not groups:
        return None
    rows = Memberships.of([sorted(group.members) for group in groups], ranks=len(state.ranks))
    entered, finished, reported = (np.zeros(len(rows), dtype=np.int64) for _ in range(3))
    for row, (group, rank) in enumerate(zip(rows.group.tolist(), rows.rank.tolist(), strict=True)):
        progress = groups[group]
        entered[row] = progress.entered.get(rank, 0)
        finished[row] = progress.finished.get(rank, 0)
        reported[row] = progress.reported_s.get(rank, -np.inf) >= since_s
    waits = wait_for(rows, entered=entered, finished=finished, reported=reported.astype(np.bool_))
    return Graph(rows, waits, groups)


def waiters(graph: Graph) -> int:
    return int(graph.rows.anywhere(graph.waits.waiting).sum())


def waits_since_s(graph: Graph, stall: Stall) -> float:
    """Return when the last waiting rank called its operation, if known: no rank was missing before."""
    times_s = [
        pending.since_s
        for group in graph.groups
        for rank, pending in group.pending.items()
        if pending.since_s is not None and group.entered[rank] > group.finished.get(rank, 0)
    ]
    return max([stall.since_s, *(since for since in times_s if since <= stall.observed_until_s)])


def _groups(state: JobState) -> tuple[GroupProgress, ...]:
    named = {name: group for name, group in state.groups.items() if name and PAIR not in name}
    own = not state.recorded.isdisjoint(named)  # the job's records distinguish its groups
    whole = () if own else (_everybody(state),)
    return tuple(group for group in (*whole, *named.values()) if len(group.entered) > 1)


def _everybody(state: JobState) -> GroupProgress:
    group = GroupProgress(set(range(len(state.ranks))))
    for index, rank in enumerate(state.ranks):
        times_s = [at for at in (rank.beat_s, rank.records_s) if at is not None]
        if times_s and rank.entered:
            group.entered[index], group.finished[index] = rank.entered, rank.finished
            group.reported_s[index] = max(times_s)
    return group


def hangs(state: JobState, settings: HangSettings, *, now_s: float) -> tuple[Diagnosis, ...]:
    stall = find_stall(state, settings, now_s=now_s)
    if stall is None:
        return _of_dumps(state, now_s=now_s)
    if stall.duration_s < max(settings.cut_still_s, settings.still_steps * stall.step_s):
        return ()
    dead = frozen(state, settings, stall, now_s=now_s)
    located_cuts = _cut(state, settings, stall, dead)
    if dead or located_cuts:
        return (
            *(of_frozen(each, stall, state, now_s=now_s) for each in dead),
            *(of_cut(each, stall, now_s=now_s) for each in located_cuts),
        )
    return _missing_ranks(state, settings, stall, now_s=now_s)


def _cut(state: JobState, settings: HangSettings, stall: Stall, dead: list[Frozen]) -> list[CutNode | CutLink]:
    """Return the cuts that no frozen process explains; the full buffers of such a process stop its peers too."""
    found = cuts(state, settings, since_s=stall.since_s)
    nodes = {each.node for each in dead}
    found = {ends: cut for ends, cut in found.items() if not nodes.intersection(ends)}
    located_cuts = placed(found, state, since_s=stall.since_s)
    if any(isinstance(each, CutLink) for each in located_cuts) and undecided(found, state, since_s=stall.since_s):
        return [each for each in located_cuts if isinstance(each, CutNode)]
    return located_cuts


def _missing_ranks(state: JobState, settings: HangSettings, stall: Stall, *, now_s: float) -> tuple[Diagnosis, ...]:
    patience_s = max(settings.own_code_s, settings.still_steps * stall.step_s)
    patience_s = max(patience_s, settings.own_code_late * state.pace.latest_s())
    if stall.duration_s < patience_s:
        return ()
    graph = graph_of(state, since_s=stall.since_s)
    if graph is None or not graph.waits.stall:
        return ()
    waiting = waiters(graph)
    named = [
        of_missing_rank(
            rank,
            state,
            stall,
            waiting=waiting,
            sure=graph.reporting,
            isolate=stall.duration_s >= max(settings.own_code_isolate_s, 2 * patience_s) and graph.reporting,
            onset_s=waits_since_s(graph, stall),
            now_s=now_s,
        )
        for rank in graph.waits.missing.tolist()
        if _reports_itself(state, settings, stall, rank, patience_s=patience_s)
    ]
    return tuple(named) or _unnamed(state, settings, stall, graph, now_s=now_s)


def _reports_itself(state: JobState, settings: HangSettings, stall: Stall, index: int, *, patience_s: float) -> bool:
    """Return whether the rank itself reported during the whole stall that it has not entered the operation."""
    rank = state.ranks[index]
    needed_s = patience_s if rank.phase in ALIVE_PHASES or not rank.phase else PATIENT * patience_s
    beats = rank.beat_s is None or rank.beats_since_entered >= settings.own_code_beats
    return beats and stall.duration_s >= needed_s


def _unnamed(
    state: JobState, settings: HangSettings, stall: Stall, graph: Graph, *, now_s: float
) -> tuple[Diagnosis, ...]:
    if stall.duration_s < settings.nowhere_s:
        return ()
    silent = graph.waits.silent.tolist()
    if len(silent) == 1:
        return (of_silence(silent[0], state, stall, now_s=now_s),)
    if silent or graph.waits.stuck.any():
        return (of_nowhere(stall, waiting=waiters(graph), now_s=now_s),)
    return ()


def findings_of_dumps(state: JobState) -> DumpFindings:
    """Return what the Flight Recorder dumps of a job show, or, without any, its newest counts of NCCL RAS."""
    counts = {name: group for name, group in state.groups.items() if name.startswith(RAS_PREFIX)}
    if state.dumped:
        groups = {name: group for name, group in state.groups.items() if name and name not in counts}
        return find_causes(groups, reporting=state.dumped)
    reporting = {rank for group in counts.values() for rank in group.entered}
    found = find_causes({name: _as_dumped(name, group) for name, group in counts.items()}, reporting=reporting)
    # Ranks of a healthy job differ by an operation too.
    return replace(found, causes=tuple(replace(cause, sure=False) for cause in found.causes))


def _as_dumped(name: str, group: GroupProgress) -> GroupProgress:
    """RAS counts calls, not ends: an operation that all ranks have called can be finished on all of them."""
    called_by_all = min(group.entered.values(), default=0)
    description = f"communicator {name.removeprefix(RAS_PREFIX)}"
    return replace(group, description=description, finished=dict.fromkeys(group.entered, called_by_all))


def _of_dumps(state: JobState, *, now_s: float) -> tuple[Diagnosis, ...]:
    """Diagnose by dumps or counts without any live source: they were written because the job stopped."""
    if state.progress_s is not None or state.pairs or any(rank.beat_s is not None for rank in state.ranks):
        return ()
    found = findings_of_dumps(state)
    since_s = (pending.since_s for group in state.groups.values() for pending in group.pending.values())
    onset_s = min((at_s for at_s in since_s if at_s is not None), default=now_s)
    if found.waits and not found.causes:
        return (of_unexplained_dumps(found.waiting, onset_s=onset_s, now_s=now_s),)
    return tuple(of_dumps(cause, state, onset_s=onset_s, now_s=now_s) for cause in found.causes)
