"""One fault, one verdict: what is said of the same thing again and again, merged, with the moment it was first said."""

from collections import deque
from collections.abc import Iterable

from faults.verdict import FaultClass, Scope, Verdict

KEPT = 1024

Key = tuple[str, int | None, int | None, str | None]


class FaultsSeen:
    """The faults of a job in the order of their detection; the newest KEPT of them."""

    def __init__(self, same_fault_s: float) -> None:
        self._same_s = same_fault_s
        self._all: deque[_Fault] = deque()
        self._newest: dict[Key, _Fault] = {}

    def say(self, verdicts: Iterable[Verdict], *, now_s: float) -> tuple[Verdict, ...]:
        """Take what is believed now; the same as merged with what was said before."""
        return tuple(self._merged(verdict, now_s=now_s) for verdict in verdicts)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Every fault so far, as it was last said."""
        return tuple(fault.verdict for fault in self._all)

    def _merged(self, verdict: Verdict, *, now_s: float) -> Verdict:
        key = key_of(verdict)
        fault = self._newest.get(key)
        if fault is not None and now_s - fault.said_s <= self._same_s:
            fault.verdict = again(fault.verdict, verdict)
            fault.said_s = now_s
            return fault.verdict
        self._withdraw(verdict, now_s=now_s)
        self._newest[key] = fault = _Fault(key, verdict, now_s)
        self._all.append(fault)
        if len(self._all) > KEPT:
            oldest = self._all.popleft()
            if self._newest.get(oldest.key) is oldest:
                del self._newest[oldest.key]
        return verdict

    def _withdraw(self, verdict: Verdict, *, now_s: float) -> None:
        """A link of a node that hangs as a whole was no fault of its own."""
        if verdict.scope is not Scope.NODE or verdict.fault is not FaultClass.COMM_HANG:
            return
        for fault in [each for each in self._all if now_s - each.said_s <= self._same_s]:
            told = fault.verdict
            link = told.scope is Scope.LINK and told.fault is verdict.fault
            if link and verdict.node in (told.node, told.peer):
                self._all.remove(fault)
                self._newest.pop(fault.key, None)


class _Fault:
    __slots__ = ("key", "said_s", "verdict")

    def __init__(self, key: Key, verdict: Verdict, now_s: float) -> None:
        self.key, self.verdict, self.said_s = key, verdict, now_s


def again(before: Verdict, now: Verdict) -> Verdict:
    """The later word with the earlier times; what was once sure does not become less so."""
    surer = now if (now.confidence, now.isolate) > (before.confidence, before.isolate) else before
    return surer.model_copy(
        update={
            "onset_s": before.onset_s,
            "detected_s": before.detected_s,
            "isolate": before.isolate or now.isolate,
            "evidence": tuple(dict.fromkeys((*before.evidence, *now.evidence))),
        }
    )


def key_of(verdict: Verdict) -> Key:
    """A rank and its node are one place; a link is one, whichever end it is told from."""
    if verdict.scope is Scope.LINK and verdict.node is not None and verdict.peer is not None:
        ends = sorted((verdict.node, verdict.peer))
        return (f"{verdict.fault}/link", ends[0], ends[1], None)
    scope = "node" if verdict.scope in (Scope.RANK, Scope.NODE) else verdict.scope
    return (f"{verdict.fault}/{scope}", verdict.node, verdict.peer, verdict.switch)
