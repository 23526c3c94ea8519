"""Times and token counts of a response, read while its chunks are forwarded unchanged.

Events of a stream are counted at `data:` lines, wherever chunks are cut.  Engines put `usage` after the choices (in a
stream, if the caller requests it, into one of the last events), so only the end of a response is kept.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

TAIL_BYTES = 16 * 1024
MAX_TOKENS = 10**9

_EVENT = b"\ndata:"
_DONE = re.compile(rb"\ndata: ?\[DONE\]")
_USAGE = re.compile(r'"usage"\s*:\s*(?=\{)')  # inside a string its quotes are escaped
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class ResponseReader:
    __slots__ = ("_carry", "_readable", "_tail", "events", "first_s", "last_s", "streamed")

    def __init__(self, *, streamed: bool, readable: bool = True) -> None:
        """`readable`: not compressed."""
        self.streamed = streamed
        self._readable = readable
        self._carry = b"\n"
        self._tail = b""
        self.events = 0
        self.first_s: float | None = None  # of the first event, or the first byte of a response in one piece
        self.last_s: float | None = None

    def observe(self, chunk: bytes, *, now_s: float) -> None:
        if not chunk:
            return
        counted = True
        if self._readable:
            counted = not self.streamed or self._count(chunk) > 0
            self._tail = (self._tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
        if counted:
            self.first_s = now_s if self.first_s is None else self.first_s
            self.last_s = now_s

    def usage(self) -> Usage:
        """Return the token counts until now: the engine's, else the number of events."""
        counted = _usage_in(self._tail.decode(errors="replace"))
        if counted.output_tokens is not None or not self.streamed or not self._readable:
            return counted
        ended = _DONE.search(b"\n" + self._tail) is not None
        return Usage(prompt_tokens=counted.prompt_tokens, output_tokens=self.events - ended)

    def token_s(self, output_tokens: int | None) -> float | None:
        """Return the mean time between tokens; None for fewer than two tokens and without a stream."""
        if not self.streamed or self.first_s is None or self.last_s is None or (output_tokens or 0) < 2:
            return None
        return (self.last_s - self.first_s) / ((output_tokens or 0) - 1)

    def _count(self, chunk: bytes) -> int:
        joined = self._carry + chunk
        found = joined.count(_EVENT)
        self.events += found
        self._carry = joined[1 - len(_EVENT) :]  # one byte short of another match
        return found


def _usage_in(text: str) -> Usage:
    places = [match.end() for match in _USAGE.finditer(text)]
    if not places:
        return Usage()
    try:
        found, _ = _DECODER.raw_decode(text, places[-1])
    except ValueError:
        return Usage()
    return Usage(
        prompt_tokens=_tokens(found, "prompt_tokens", "input_tokens"),
        output_tokens=_tokens(found, "completion_tokens", "output_tokens"),
    )


def _tokens(found: dict[str, Any], *names: str) -> int | None:
    """Return the first count; the second name is that of the Responses protocol."""
    values = (found.get(name) for name in names)
    return next((value for value in values if type(value) is int and 0 <= value <= MAX_TOKENS), None)
