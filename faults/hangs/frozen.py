"""A process that does not run: it sends no heartbeat and reads no bytes, while its node's agent keeps sampling.

Positive evidence is a stopped process, or unread bytes.  A missing heartbeat alone is silence.  Healthy ranks can also
have unread bytes, where a library reads one peer at a time.  Without a missing heartbeat, unread bytes therefore name a
node only if no other node has any.
"""

from dataclasses import dataclass

from faults.hangs.settings import HangSettings
from faults.hangs.stall import Stall, fresh, share_with_heartbeat
from faults.job_state import JobState


@dataclass(frozen=True, slots=True)
class Frozen:
    rank: int
    node: int
    silent_s: float | None  # age of its last heartbeat, by its node's agent
    unread_bytes: int
    stopped: bool


def frozen(state: JobState, settings: HangSettings, stall: Stall, *, now_s: float) -> list[Frozen]:
    unread = _unread(state, settings, stall)
    found = []
    for index, rank in enumerate(state.ranks):
        node = state.nodes[rank.node]
        if not fresh(node.sampled_s, state, settings, now_s=now_s) and rank.stopped_s is None:
            continue
        silent_s = _silent_s(state, settings, index)
        bytes_, for_s = unread.get(rank.node, (0, 0.0))
        if rank.stopped_s is not None:
            found.append(Frozen(index, rank.node, silent_s, bytes_, stopped=True))
        elif silent_s is not None and for_s >= settings.frozen_s:
            found.append(Frozen(index, rank.node, silent_s, bytes_, stopped=False))
        elif silent_s is None and for_s >= settings.unread_s and list(unread) == [rank.node] and _alone(state, index):
            found.append(Frozen(index, rank.node, None, bytes_, stopped=False))
    return found


def _alone(state: JobState, rank: int) -> bool:
    """Return whether the rank is alone on its node.  Unread bytes belong to a node, not to a rank."""
    return len(state.ranks_on(state.ranks[rank].node)) == 1


def _unread(state: JobState, settings: HangSettings, stall: Stall) -> dict[int, tuple[int, float]]:
    """Return, per node, the number of unread bytes during the stall and their duration."""
    found: dict[int, tuple[int, float]] = {}
    for key in sorted(state.unread):
        pair = state.pairs[key]
        if pair.unread_samples >= settings.looks and pair.at_s > stall.since_s:
            bytes_, for_s = found.get(key[0], (0, 0.0))
            found[key[0]] = (bytes_ + pair.socket.read_queue_bytes, max(for_s, pair.unread_s()))
    return found


def _silent_s(state: JobState, settings: HangSettings, index: int) -> float | None:
    """Return the age of the last heartbeat, if above the rank's limit and most other ranks send heartbeats."""
    rank = state.ranks[index]
    sampled_s = state.nodes[rank.node].sampled_s
    if rank.beat_s is None or sampled_s is None:
        return None
    limit_s = max(settings.frozen_beats * state.job.heartbeat_s, settings.frozen_gap * rank.longest_gap_s)
    silent_s = sampled_s - rank.beat_s
    others = share_with_heartbeat(state, since_s=rank.beat_s + limit_s / 2)
    return silent_s if silent_s >= limit_s and others >= 0.5 else None
