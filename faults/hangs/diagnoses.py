"""The diagnosis of each kind of hang: class, place, confidence, reason, and whether it justifies a quarantine."""

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.hangs.dumps import Cause, Reason
from faults.hangs.frozen import Frozen
from faults.hangs.link_cuts import CutLink, CutNode
from faults.hangs.stall import Stall
from faults.job_state import JobState

SURE, NEARLY, LIKELY, UNSURE, GUESS = 0.99, 0.97, 0.9, 0.6, 0.3


def of_cut(cut: CutNode | CutLink, stall: Stall, *, now_s: float) -> Diagnosis:
    if isinstance(cut, CutNode):
        ways = {Direction.TX: "its outgoing packets are lost", Direction.RX: "its incoming packets are lost"}
        findings = "nothing is acknowledged"
        if cut.direction is not None:
            findings = ways.get(cut.direction, "no packet arrives in either direction")
        others = ", ".join(map(str, cut.peers[:4])) + (", ..." if len(cut.peers) > 4 else "")
        summary = f"node {cut.node} is cut off from nodes {others}: {findings};"
    else:
        arrow = {Direction.FORWARD: "->", Direction.BOTH: "<->", None: "-"}[cut.direction]
        unknown = " in one direction or both; only one end was observed" if cut.direction is None else ""
        summary = f"link {cut.node}{arrow}{cut.peer} loses all packets{unknown}:"
    return Diagnosis(
        fault=FaultClass.COMM_HANG,
        scope=Scope.NODE if isinstance(cut, CutNode) else Scope.LINK,
        node=cut.node,
        peer=None if isinstance(cut, CutNode) else cut.peer,
        direction=cut.direction,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=isinstance(cut, CutNode),
        confidence=NEARLY,
        reason=f"{summary} {cut.backoff} failed retransmissions, no collective finished for {stall.duration_s:.1f} s",
        evidence=("unacked", "backoff", "standstill"),
    )


def of_frozen(found: Frozen, stall: Stall, state: JobState, *, now_s: float) -> Diagnosis:
    evidence = ["standstill"]
    findings = []
    if found.stopped:
        evidence.append("process")
        findings.append("is stopped")
    if found.silent_s is not None:
        evidence.append("heartbeat")
        findings.append(f"has sent no heartbeat for {found.silent_s:.1f} s")
    if found.unread_bytes:
        evidence.append("unread")
        findings.append(f"has {found.unread_bytes:,} unread bytes")
    others = "while its node's agent and the other ranks continue"
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=found.node,
        rank=found.rank,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=found.stopped or found.silent_s is not None,
        confidence=SURE if found.stopped else NEARLY if found.silent_s is not None else UNSURE,
        reason=f"rank {found.rank} {' and '.join(findings)} {others}" + device_events(state, found.node),
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
    node, phase = state.ranks[rank].node, state.ranks[rank].phase
    where = f" (phase {phase})" if phase else ""
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        rank=rank,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=isolate,
        confidence=LIKELY if sure else UNSURE,
        reason=f"rank {rank} has not called the operation that {waiting} ranks wait in{where}, "
        f"for {stall.duration_s:.1f} s" + device_events(state, node),
        evidence=("sequence", "wait-for", "heartbeat"),
    )


def of_dumps(cause: Cause, state: JobState, *, onset_s: float, now_s: float) -> Diagnosis:
    """Diagnose the cause by Flight Recorder dumps alone, which are written after the job stopped."""
    node = state.ranks[cause.rank].node
    findings = {
        Reason.NOT_CALLED: f"has not called {cause.op} of {cause.group}, in which "
        f"{_count(cause.waiting, 'rank waits', 'ranks wait')}",
        Reason.NOT_STARTED: f"has called {cause.op} of {cause.group}, but its device has not started it",
        Reason.NOT_FINISHED: f"has not finished {cause.op} of {cause.group}, which "
        f"{_count(cause.waiting, 'peer has', 'peers have')} finished",
        Reason.OTHER_OPERATION: f"has called {cause.op} of {cause.group}, in which "
        f"{_count(cause.waiting, 'rank waits', 'ranks wait')} in another operation",
        Reason.NO_DUMP: f"has no dump with {cause.group}, and {_count(cause.waiting, 'rank waits', 'ranks wait')} in "
        f"{cause.op} of this group, which all others have called",
    }
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        rank=cause.rank,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=cause.sure,
        confidence=GUESS if cause.reason is Reason.NO_DUMP else LIKELY if cause.sure else UNSURE,
        reason=f"rank {cause.rank} {findings[cause.reason]}" + device_events(state, node),
        evidence=("flight-recorder", "wait-for"),
    )


def of_unexplained_dumps(waiting: int, *, onset_s: float, now_s: float) -> Diagnosis:
    """Diagnose a job whose dumps show that it stopped, and not where."""
    return Diagnosis(
        fault=FaultClass.COMM_HANG,
        scope=Scope.WORKLOAD,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"{_count(waiting, 'rank waits', 'ranks wait')} in operations, and no dump shows for which rank",
        evidence=("flight-recorder", "wait-for"),
    )


def of_silence(rank: int, state: JobState, stall: Stall, *, now_s: float) -> Diagnosis:
    """Diagnose a silent rank that can be the cause; an independent source must confirm the diagnosis."""
    node = state.ranks[rank].node
    return Diagnosis(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        rank=rank,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"rank {rank} has reported nothing for {stall.duration_s:.1f} s, and all ranks that report wait; "
        "silence alone proves nothing",
        evidence=("silence", "wait-for"),
    )


def of_nowhere(stall: Stall, *, waiting: int, now_s: float) -> Diagnosis:
    """Diagnose a hang without a place: all ranks entered, none finished, and there is no evidence on the wire."""
    return Diagnosis(
        fault=FaultClass.COMM_HANG,
        scope=Scope.WORKLOAD,
        onset_s=stall.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"{waiting} ranks have called the same operation and none has finished for {stall.duration_s:.1f} s; "
        "no link or node shows why",
        evidence=("sequence", "standstill"),
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def device_events(state: JobState, node: int) -> str:
    """Return recent events of the node's devices, as the end of a reason."""
    events = state.nodes[node].device_events
    return f"; its devices reported {', '.join(dict.fromkeys(event for _, event in events))}" if events else ""
