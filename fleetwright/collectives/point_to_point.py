"""Pairs the sends and receives of a rank into passes.

A ring exchange, a pipeline hand-over in both directions and a batch are one case: an overlapping send and receive
form a pass.  Its one-way delays separate a slow sender from a slow receiver, which TCP counters cannot.  An unpaired
operation is not recorded; the heartbeat's phase shows it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fleetwright.collectives.progress import Line

MAX_UNPAIRED: Final = 64


@dataclass(slots=True)
class Half:
    sends: bool
    other: int  # rank at the other end
    size_bytes: int
    called_s: float
    step: int | None
    done_s: float | None = None
    partner: "Half | None" = None


class Passes:
    """Pairs halves; calls `record` for each pass when both halves have ended."""

    def __init__(self, record: Callable[[Line], None], *, now_s: Callable[[], float]) -> None:
        self._record, self._now_s = record, now_s
        self._unpaired: list[Half] = []
        self._lock = threading.Lock()

    def begin(self, *, sends: bool, other: int, size_bytes: int, step: int | None) -> Half:
        half = Half(sends, other, size_bytes, self._now_s(), step)
        with self._lock:
            partner = next((one for one in self._unpaired if one.sends is not sends), None)
            if partner is None:
                self._unpaired.append(half)
                del self._unpaired[:-MAX_UNPAIRED]
            else:
                self._unpaired.remove(partner)
                half.partner, partner.partner = partner, half
        return half

    def end(self, half: Half) -> None:
        with self._lock:
            if half.done_s is not None:
                return
            half.done_s = self._now_s()
            if half.partner is None:
                self._unpaired = [one for one in self._unpaired if one is not half]
                return
            both_done = half.partner.done_s is not None
        if both_done:
            self._record(_line(half, half.partner))

    def forget(self, half: Half) -> None:
        """Drop an operation that raised.  Its partner will raise too, and neither forms a pass."""
        with self._lock:
            half.done_s = self._now_s()
            self._unpaired = [one for one in self._unpaired if one is not half]
            if half.partner is not None:
                half.partner.partner = None


def _line(half: Half, partner: Half) -> Line:
    sent, received = (half, partner) if half.sends else (partner, half)
    called_s = min(sent.called_s, received.called_s)
    line: Line = {
        "op": "p2p",
        "src": received.other,
        "dst": sent.other,
        "n": received.size_bytes,
        "t0": round(called_s, 6),
        "tr": round(received.done_s or called_s, 6),
        "ts": round(sent.done_s or called_s, 6),
    }
    if half.step is not None:
        line["step"] = half.step
    return line


class OnEnd(Protocol):
    """Called when an operation has ended, with what it raised."""

    def __call__(self, *, raised: BaseException | None) -> None: ...


def watched_work(work_type: type[Any]) -> Callable[[Any, OnEnd], Any]:
    """Make a Work that reports when it was waited for: gloo's sends and receives have no future.

    The result is a subclass of the given type and delegates everything else to the inner Work.
    """

    def handed_on(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **named: Any) -> Any:
            return getattr(self.inner, name)(*args, **named)

        return call

    def init(self: Any, inner: Any, ended: OnEnd) -> None:
        work_type.__init__(self)
        self.inner, self.ended = inner, ended

    def wait(self: Any, *args: Any, **named: Any) -> Any:
        try:
            found = self.inner.wait(*args, **named)
        except BaseException as error:
            self.ended(raised=error)
            raise
        self.ended(raised=None)
        return found

    def get_future(self: Any) -> Any:
        future = self.inner.get_future()
        future.add_done_callback(lambda future: self.ended(raised=error_of(future)))
        return future

    public = {name: handed_on(name) for name in dir(work_type) if not name.startswith("__")}
    made: Callable[[Any, OnEnd], Any] = type(
        "WatchedWork", (work_type,), public | {"__init__": init, "wait": wait, "get_future": get_future}
    )
    return made


def error_of(future: Any) -> Exception | None:
    """Return the exception of a finished future; torch's future has no other accessor."""
    try:
        future.value()
    except Exception as error:  # noqa: BLE001 - whatever the operation raised
        return error
    return None
