"""The crash detector: the rank whose sockets or process vanished first, while other ranks still wait for it.

docs/explanation/faults/hangs.md, "Crashes"
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.job_state import JobState, NodeSamples
from faults.job_state.ranks import DONE, FAILED
from fleet.documents import Frozen

Seconds = Annotated[float, Field(ge=1e-3, le=86_400.0)]


class CrashSettings(Frozen):
    """Limits per kind of evidence."""

    # Sockets only: a job that ends also closes its sockets, within the exit time of its processes.
    sockets_only_s: Seconds = 1.0
    # Device events within this time are part of the reason.
    device_event_s: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class Vanished:
    """A node whose ranks vanished: after `after_s`, observed at `observed_s`."""

    node: int
    after_s: float
    observed_s: float
    by_process: bool  # the kernel reports that the process is gone
    by_sockets: bool


def crashes(state: JobState, settings: CrashSettings, *, now_s: float) -> tuple[Diagnosis, ...]:
    """Return the node that vanished first, if a rank still waits for it."""
    missed = _missed_by_peers(state)
    nodes = range(len(state.nodes))
    gone = [found for node in nodes if (found := _vanished(state, node) or missed.get(node)) is not None]
    gone = [each for each in gone if not _reported_phase(state, each.node, DONE)]
    suspects = [each for each in gone if not _reported_phase(state, each.node, FAILED)]
    failed_ranks = [index for index, rank in enumerate(state.ranks) if rank.phase == FAILED]
    if suspects and failed_ranks:
        return (_diagnosis(state, settings, suspects, waiting=len(failed_ranks), now_s=now_s),)
    if not gone or len(gone) == len(state.nodes):
        return ()
    waiting = _waiting_for(state, gone)
    if waiting is None:
        return _by_sockets_alone(state, settings, gone, now_s=now_s)
    return (_diagnosis(state, settings, gone, waiting=len(waiting), now_s=now_s),) if waiting else ()


def _missed_by_peers(state: JobState) -> dict[int, Vanished]:
    """Return the nodes without an own report to which no sampling peer with earlier sockets has any left."""
    had: dict[int, list[tuple[float, float]]] = {}
    for (observer, node), pair in state.pairs.items():
        samples = state.nodes[observer]
        if samples.peers and samples.sampled_s is not None:
            had.setdefault(node, []).append((pair.at_s, samples.sampled_s))
    found = {}
    for node, times in had.items():
        after_s, observed_s = max(at for at, _ in times), min(sampled for _, sampled in times)
        own_s = state.nodes[node].sampled_s
        if len(times) > 1 and after_s < observed_s and (own_s is None or own_s < observed_s):
            found[node] = Vanished(node, after_s, observed_s, by_process=False, by_sockets=True)
    return found


def _has_stale_agent(state: JobState, first: Vanished) -> bool:
    """Return whether an agent has not sampled since: its node can have vanished before the observed one."""
    since_s = first.observed_s - state.job.look_period_s / 2
    return any(
        node != first.node and samples.sampled_s is not None and samples.sampled_s < since_s
        for node, samples in enumerate(state.nodes)
    )


def _reported_phase(state: JobState, node: int, phase: str) -> bool:
    return any(state.ranks[index].phase == phase for index in state.ranks_on(node))


def _vanished(state: JobState, node: int) -> Vanished | None:
    samples = state.nodes[node]
    gone = [rank.gone_s for index in state.ranks_on(node) if (rank := state.ranks[index]).gone_s is not None]
    if samples.vanished_s is not None and samples.socketed_s is not None and (gone or _confirmed(state, node, samples)):
        return Vanished(node, samples.socketed_s, min([samples.vanished_s, *gone]), bool(gone), by_sockets=True)
    if gone:
        alive = [beat for index in state.ranks_on(node) if (beat := state.ranks[index].beat_s) is not None]
        return Vanished(
            node,
            max([at for at in alive if at <= min(gone)], default=min(gone)),
            min(gone),
            by_process=True,
            by_sockets=False,
        )
    return None


def _confirmed(state: JobState, node: int, samples: NodeSamples) -> bool:
    """Return whether another sample of its agent, or a peer without sockets to it, confirms that the node vanished."""
    if samples.vanished_s is None or samples.sampled_s is None:
        return False
    if samples.sampled_s > samples.vanished_s:
        return True
    for peer, other in enumerate(state.nodes):
        pair = state.pairs.get((peer, node))
        if pair is not None and other.sampled_s is not None and other.peers and pair.at_s < other.sampled_s:
            return True
    return False


def _waiting_for(state: JobState, gone: list[Vanished]) -> list[int] | None:
    """Return the ranks elsewhere that wait in an operation of a vanished rank; None if no rank counts operations."""
    if not any(rank.entered for rank in state.ranks):
        return None
    away = {each.node for each in gone}
    observed_s = min(each.observed_s for each in gone)
    behind = min(state.ranks[index].finished for node in away for index in state.ranks_on(node))
    waiting = []
    for index, rank in enumerate(state.ranks):
        known = rank.records_s is not None or (rank.beat_s is not None and rank.beat_s >= observed_s)
        if rank.node not in away and known and rank.pending and rank.entered > behind:
            waiting.append(index)
    return waiting


def _tied(gone: list[Vanished]) -> list[Vanished]:
    earliest = min(gone, key=lambda each: each.observed_s)
    return [each for each in gone if each is earliest or each.after_s < earliest.observed_s]


def _first(state: JobState, gone: list[Vanished]) -> Vanished:
    """Return the earliest node; within one sample, the node without progress for longest."""
    return min(
        _tied(gone), key=lambda each: (not each.by_process, _moved_s(state, each.node), each.observed_s, each.node)
    )


def _moved_s(state: JobState, node: int) -> float:
    return max(
        (moved for index in state.ranks_on(node) if (moved := state.ranks[index].moved_s()) is not None), default=0.0
    )


def _by_sockets_alone(
    state: JobState, settings: CrashSettings, gone: list[Vanished], *, now_s: float
) -> tuple[Diagnosis, ...]:
    first = _first(state, gone)
    connected = [
        node
        for node, samples in enumerate(state.nodes)
        if samples.peers and (samples.sampled_s or 0.0) >= first.observed_s + settings.sockets_only_s
    ]
    if len(connected) * 2 < len(state.nodes):
        return ()
    return (_diagnosis(state, settings, gone, waiting=None, now_s=now_s),)


def _diagnosis(
    state: JobState, settings: CrashSettings, gone: list[Vanished], *, waiting: int | None, now_s: float
) -> Diagnosis:
    first = _first(state, gone)
    clear = len(_tied(gone)) == 1 and not _has_stale_agent(state, first)
    evidence = ["sockets-gone"] if first.by_sockets else []
    if first.by_process:
        evidence.append("process")
    if waiting is not None:
        evidence.append("sequence")
    events = [
        event
        for at_s, event in state.nodes[first.node].device_events
        if abs(at_s - first.observed_s) <= settings.device_event_s
    ]
    evidence += ["device"] if events else []
    known = waiting is not None and clear
    others = "the other nodes keep theirs" if waiting is None else f"{waiting} ranks wait for it"
    finding = "process is gone" if not first.by_sockets else "sockets have all gone"
    return Diagnosis(
        fault=FaultClass.CRASH,
        scope=Scope.RANK,
        node=first.node,
        rank=state.job.only_rank_on(first.node),
        onset_s=first.after_s,
        detected_s=now_s,
        isolate=known,
        confidence=0.98 if known else 0.6,
        reason=f"node {first.node}: the job's {finding}, first of all, and {others}"
        + (f"; its devices reported {', '.join(dict.fromkeys(events))}" if events else ""),
        evidence=tuple(evidence),
    )
