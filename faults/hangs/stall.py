"""Whether the job is stalled, since when, and whether the evidence is recent enough."""

from dataclasses import dataclass
from statistics import median

from faults.hangs.settings import HangSettings
from faults.job_state import JobState


@dataclass(frozen=True, slots=True)
class Stall:
    since_s: float
    observed_until_s: float  # end of the evidence: the newest report of the ranks or the sockets, not the current time
    step_s: float

    @property
    def duration_s(self) -> float:
        """Return the observed duration; it does not grow without new reports."""
        return self.observed_until_s - self.since_s


def find_stall(state: JobState, settings: HangSettings, *, now_s: float) -> Stall | None:
    """Return the current stall; None if a rank has progressed or the job has not started."""
    step_s = state.pace.step_s() or settings.step_s
    since_s = state.progress_s
    if since_s is None:  # without reports of ranks: when bytes last moved between any two nodes
        since_s = max((pair.moved_s for pair in state.pairs.values()), default=None)
    until_s = _observed_until_s(state, now_s=now_s)
    if since_s is None or until_s is None or until_s <= since_s:
        return None
    return Stall(since_s, until_s, step_s)


def fresh(at_s: float | None, state: JobState, settings: HangSettings, *, now_s: float) -> bool:
    return at_s is not None and now_s - at_s <= settings.stale_looks * state.job.look_period_s


def share_with_heartbeat(state: JobState, *, since_s: float) -> float:
    """Return the share of senders with a heartbeat since: a machine without a free core delays all of them."""
    beats_s = [rank.beat_s for rank in state.ranks if rank.beat_s is not None]
    return sum(beat_s >= since_s for beat_s in beats_s) / len(beats_s) if beats_s else 0.0


def _observed_until_s(state: JobState, *, now_s: float) -> float | None:
    """Return the median of the newest reports, which one sender cannot move."""
    times_s = [rank.beat_s for rank in state.ranks if rank.beat_s is not None]
    times_s += [node.sampled_s for node in state.nodes if node.sampled_s is not None]
    return min(median(times_s), now_s) if times_s else None
