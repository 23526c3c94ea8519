"""A hang in words: class, place, whether it justifies taking a node out, and why."""

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.hangs.frozen import Frozen
from faults.hangs.link_cuts import CutLink, CutNode
from faults.hangs.stall import Stall
from faults.job_state import JobState

SURE, NEARLY, LIKELY, UNSURE, GUESS = 0.99, 0.97, 0.9, 0.6, 0.3


def of_cut(cut: CutNode | CutLink, stall: Stall, *, now_s: float) -> Diagnosis:
    """Nothing gets through to or from a node, or between two."""
    told = f"{cut.backoff} retransmissions in vain, no collective finished for {stall.duration_s:.1f} s"
    if isinstance(cut, CutNode):
        ways = {Direction.TX: "what it sends is lost", Direction.RX: "what it is sent is lost"}
        said = (
            "nothing is acknowledged"
            if cut.direction is None
            else ways.get(cut.direction, "nothing arrives either way")
        )
        others = ", ".join(map(str, cut.peers[:4])) + (", ..." if len(cut.peers) > 4 else "")
        return Diagnosis(
            fault=FaultClass.COMM_HANG,
            scope=Scope.NODE,
            node=cut.node,
            direction=cut.direction,
            onset_s=stall.since_s,
            detected_s=now_s,
            isolate=True,
            confidence=NEARLY,
            reason=f"node {cut.node} is cut off from nodes {others}: {said}; {told}",
            evidence=("unacked", "backoff", "standstill"),
        )
    arrow = "->" if cut.direction is Direction.FORWARD else "<->" if cut.direction is Direction.BOTH else "-"
    loses = (
        "loses everything" if cut.direction is not None else "loses everything one way or both, one end was not seen"
    )
    return Diagnosis(
        fault=FaultClass.COMM_HANG,
        scope=Scope.LINK,
        node=cut.node,
        peer=cut.peer,
        direction=cut.direction,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=NEARLY,
        reason=f"link {cut.node}{arrow}{cut.peer} {loses}: {told}",
        evidence=("unacked", "backoff", "standstill"),
    )


def of_frozen(found: Frozen, stall: Stall, state: JobState, *, now_s: float) -> Diagnosis:
    """A process that does not run, or does not read."""
    evidence = ["standstill"]
    said = []
    if found.stopped:
        evidence.append("process")
        said.append("is stopped")
    if found.silent_s is not None:
        evidence.append("heartbeat")
        said.append(f"has not beaten for {found.silent_s:.1f} s")
    if found.unread_bytes:
        evidence.append("unread")
        said.append(f"leaves {found.unread_bytes:,} bytes unread")
    others = "while its node's agent and the other ranks go on"
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=found.node,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=found.stopped or found.silent_s is not None,
        confidence=SURE if found.stopped else NEARLY if found.silent_s is not None else UNSURE,
        reason=f"rank {found.rank} {' and '.join(said)} {others}" + device_events(state, found.node),
        evidence=tuple(evidence),
    )


def of_missing_rank(
    rank: int,
    state: JobState,
    stall: Stall,
    *,
    waiting: int,
    sure: bool,
    isolate: bool,
    onset_s: float,
    now_s: float,
) -> Diagnosis:
    """A rank that lives and never came."""
    node, phase = state.ranks[rank].node, state.ranks[rank].phase
    where = f" (phase {phase})" if phase else ""
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=isolate,
        confidence=LIKELY if sure else UNSURE,
        reason=f"rank {rank} has not called the operation that {waiting} ranks wait in{where}, "
        f"for {stall.duration_s:.1f} s" + device_events(state, node),
        evidence=("sequence", "wait-for", "heartbeat"),
    )


def of_dumps(rank: int, state: JobState, *, waiting: int, complete: bool, onset_s: float, now_s: float) -> Diagnosis:
    """The same from flight recorders alone, which are read after the job stopped."""
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=state.ranks[rank].node,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=complete,
        confidence=LIKELY if complete else UNSURE,
        reason=f"rank {rank} has not called the operation that {waiting} ranks wait in, and waits in none itself",
        evidence=("flight-recorder", "wait-for"),
    )


def of_silence(rank: int, state: JobState, stall: Stall, *, now_s: float) -> Diagnosis:
    """Nothing is known of a rank that may be the cause: a question for somebody else."""
    node = state.ranks[rank].node
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"rank {rank} has said nothing for {stall.duration_s:.1f} s, and all that have wait; "
        "silence alone proves nothing",
        evidence=("silence", "wait-for"),
    )


def of_nowhere(stall: Stall, *, waiting: int, now_s: float) -> Diagnosis:
    """Everybody came and nobody gets through, with nothing on the wire to show why."""
    return Diagnosis(
        fault=FaultClass.COMM_HANG,
        scope=Scope.WORKLOAD,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"{waiting} ranks have called the same operation and none is through for {stall.duration_s:.1f} s; "
        "no link or node shows why",
        evidence=("sequence", "standstill"),
    )


def device_events(state: JobState, node: int) -> str:
    """What the node's devices reported of late, as an ending to a reason."""
    events = state.nodes[node].device_events
    return f"; its devices reported {', '.join(dict.fromkeys(said for _, said in events))}" if events else ""
