"""A hang in words: class, place, whether it justifies taking a node out, and why."""

from faults.diagnosis import Direction, FaultClass, Scope, Verdict
from faults.hangs.frozen import Frozen
from faults.hangs.link_cuts import CutLink, CutNode
from faults.hangs.stall import Standstill
from faults.job_state import Ledger

SURE, NEARLY, LIKELY, UNSURE, GUESS = 0.99, 0.97, 0.9, 0.6, 0.3


def of_cut(cut: CutNode | CutLink, still: Standstill, *, now_s: float) -> Verdict:
    """Nothing gets through to or from a node, or between two."""
    told = f"{cut.backoff} retransmissions in vain, no collective finished for {still.seen_s:.1f} s"
    if isinstance(cut, CutNode):
        ways = {Direction.TX: "what it sends is lost", Direction.RX: "what it is sent is lost"}
        said = (
            "nothing is acknowledged"
            if cut.direction is None
            else ways.get(cut.direction, "nothing arrives either way")
        )
        others = ", ".join(map(str, cut.peers[:4])) + (", ..." if len(cut.peers) > 4 else "")
        return Verdict(
            fault=FaultClass.COMM_HANG,
            scope=Scope.NODE,
            node=cut.node,
            direction=cut.direction,
            onset_s=still.since_s,
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
    return Verdict(
        fault=FaultClass.COMM_HANG,
        scope=Scope.LINK,
        node=cut.node,
        peer=cut.peer,
        direction=cut.direction,
        onset_s=still.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=NEARLY,
        reason=f"link {cut.node}{arrow}{cut.peer} {loses}: {told}",
        evidence=("unacked", "backoff", "standstill"),
    )


def of_frozen(found: Frozen, still: Standstill, ledger: Ledger, *, now_s: float) -> Verdict:
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
    return Verdict(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=found.node,
        onset_s=still.since_s,
        detected_s=now_s,
        isolate=found.stopped or found.silent_s is not None,
        confidence=SURE if found.stopped else NEARLY if found.silent_s is not None else UNSURE,
        reason=f"rank {found.rank} {' and '.join(said)} {others}" + device_events(ledger, found.node),
        evidence=tuple(evidence),
    )


def of_laggard(
    rank: int,
    ledger: Ledger,
    still: Standstill,
    *,
    waiting: int,
    sure: bool,
    isolate: bool,
    onset_s: float,
    now_s: float,
) -> Verdict:
    """A rank that lives and never came."""
    node, phase = ledger.ranks[rank].node, ledger.ranks[rank].phase
    where = f" (phase {phase})" if phase else ""
    return Verdict(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=isolate,
        confidence=LIKELY if sure else UNSURE,
        reason=f"rank {rank} has not called the operation that {waiting} ranks wait in{where}, "
        f"for {still.seen_s:.1f} s" + device_events(ledger, node),
        evidence=("sequence", "wait-for", "heartbeat"),
    )


def of_dumps(rank: int, ledger: Ledger, *, waiting: int, complete: bool, onset_s: float, now_s: float) -> Verdict:
    """The same from flight recorders alone, which are read after the job stopped."""
    return Verdict(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=ledger.ranks[rank].node,
        onset_s=onset_s,
        detected_s=now_s,
        isolate=complete,
        confidence=LIKELY if complete else UNSURE,
        reason=f"rank {rank} has not called the operation that {waiting} ranks wait in, and waits in none itself",
        evidence=("flight-recorder", "wait-for"),
    )


def of_silence(rank: int, ledger: Ledger, still: Standstill, *, now_s: float) -> Verdict:
    """Nothing is known of a rank that may be the cause: a question for somebody else."""
    node = ledger.ranks[rank].node
    return Verdict(
        fault=FaultClass.NONCOMM_HANG,
        scope=Scope.RANK,
        node=node,
        onset_s=still.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"rank {rank} has said nothing for {still.seen_s:.1f} s, and all that have wait; "
        "silence alone proves nothing",
        evidence=("silence", "wait-for"),
    )


def of_nowhere(still: Standstill, *, waiting: int, now_s: float) -> Verdict:
    """Everybody came and nobody gets through, with nothing on the wire to show why."""
    return Verdict(
        fault=FaultClass.COMM_HANG,
        scope=Scope.WORKLOAD,
        onset_s=still.since_s,
        detected_s=now_s,
        isolate=False,
        confidence=GUESS,
        reason=f"{waiting} ranks have called the same operation and none is through for {still.seen_s:.1f} s; "
        "no link or node shows why",
        evidence=("sequence", "standstill"),
    )


def device_events(ledger: Ledger, node: int) -> str:
    """What the node's devices reported of late, as an ending to a reason."""
    events = ledger.nodes[node].device_events
    return f"; its devices reported {', '.join(dict.fromkeys(said for _, said in events))}" if events else ""
