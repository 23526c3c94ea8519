"""A pickle machine that can make plain data and nothing else.

A pickle is a program.  Python's own machine can call anything (os.system), and even with its globals refused it can be
made to allocate gigabytes from a few bytes (a memo index of 2^31, a length of 2^40) or to hash a tuple for ever.  This
one knows only the opcodes that plain data needs: None, truth values, numbers, texts, bytes, tuples, lists and mappings
with plain keys, with a memo.  Whatever names, calls, builds or extends is refused before it does anything.  Memory is
bounded by the length of the input: nothing is allocated that was not read.

Opcodes: Python's Lib/pickletools.py.  torch's C++ pickler writes protocol 2, without frames.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from faults.readers.parse_errors import MalformedError

MAX_NUMBER_BYTES = 16
MAX_DEPTH = 64  # of marks, which is how deep lists and mappings can be nested while they are made

_MARK: Final = object()
_KEYS = (str, int, float, bytes, type(None))


def parse_pickle(data: bytes) -> Any:
    """The plain data of a pickle; MalformedError where it is broken, or is more than data."""
    return _Machine(data).run()


class _Machine:
    """Stack, memo, and where in the input it stands."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        try:
            while (code := self.byte()) != _STOP:
                step = _STEPS.get(code)
                if step is None:
                    raise MalformedError("pickle that is more than data")
                step(self)
            return self.pop()
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise MalformedError("broken pickle") from error

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def take(self, length: int) -> bytes:
        found = self.data[self.at : self.at + length]
        if len(found) < length:
            raise MalformedError("broken pickle")
        self.at += length
        return found

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def pop(self) -> Any:
        if self.marks and self.marks[-1] >= len(self.stack):
            raise MalformedError("broken pickle")
        return self.stack.pop()

    def mark(self) -> None:
        if len(self.marks) >= MAX_DEPTH:
            raise MalformedError("pickle nested too deep")
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise MalformedError("broken pickle")
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def tuple_of(self, length: int) -> None:
        found = [self.pop() for _ in range(length)]
        self.stack.append(tuple(reversed(found)))

    def append(self, values: list[Any]) -> None:
        target = self.top(list)
        target.extend(values)

    def put_items(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise MalformedError("broken pickle")
        target = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise MalformedError("pickle with a key that is no plain value")
            target[key] = value

    def top(self, kind: type) -> Any:
        if (self.marks and self.marks[-1] >= len(self.stack)) or not isinstance(self.stack[-1], kind):
            raise MalformedError("broken pickle")
        return self.stack[-1]

    def keep(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise MalformedError("broken pickle")
        self.stack.append(self.memo[index])

    def long(self, length: int) -> None:
        if length > MAX_NUMBER_BYTES:
            raise MalformedError("pickle with a number that is too long")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def text(self, length: int) -> None:
        self.stack.append(self.take(length).decode("utf-8", "surrogatepass"))

    def blob(self, length: int) -> None:
        self.stack.append(self.take(length))


_U1, _U2, _I4, _U4, _U8, _F8 = map(struct.Struct, ("<B", "<H", "<i", "<I", "<Q", ">d"))
_STOP = ord(".")
_STEPS: Mapping[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.byte(),  # protocol
    0x95: lambda m: m.number(_U8),  # a frame: how much may be read at once, of no use to us
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("K"): lambda m: m.stack.append(m.byte()),
    ord("M"): lambda m: m.stack.append(m.number(_U2)),
    ord("J"): lambda m: m.stack.append(m.number(_I4)),
    0x8A: lambda m: m.long(m.byte()),
    ord("G"): lambda m: m.stack.append(m.number(_F8)),
    ord("X"): lambda m: m.text(m.number(_U4)),
    0x8C: lambda m: m.text(m.byte()),
    0x8D: lambda m: m.text(m.number(_U8)),
    ord("C"): lambda m: m.blob(m.byte()),
    ord("B"): lambda m: m.blob(m.number(_U4)),
    0x8E: lambda m: m.blob(m.number(_U8)),
    ord("("): lambda m: m.mark(),
    ord(")"): lambda m: m.stack.append(()),
    ord("]"): lambda m: m.stack.append([]),
    ord("}"): lambda m: m.stack.append({}),
    ord("t"): lambda m: m.stack.append(tuple(m.since_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.since_mark()),
    ord("s"): lambda m: m.put_items([m.pop(), m.pop()][::-1]),
    ord("u"): lambda m: m.put_items(m.since_mark()),
    ord("q"): lambda m: m.keep(m.byte()),
    ord("r"): lambda m: m.keep(m.number(_U4)),
    0x94: lambda m: m.keep(len(m.memo)),
    ord("h"): lambda m: m.recall(m.byte()),
    ord("j"): lambda m: m.recall(m.number(_U4)),
}
