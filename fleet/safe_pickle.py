"""Reads a pickle from outside as data: numbers, text, bytes, tuples, lists, dictionaries, and calls from a given table.

A pickle is a program.  Python's own reader imports and calls whatever the program names, can be made to allocate
gigabytes from a few bytes (a memo index of 2^31, a length of 2^40), and can hash a nested tuple without end.  This
reader imports nothing and refuses every opcode that plain data does not need.  Memory is bounded by the length of the
input.  A large pickle that `fleet.pickle_check` finds harmless is read by Python, ten times as fast.

Opcodes: Python's Lib/pickletools.py.
"""

import pickle
import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fleet.errors import FleetwrightError

MAX_INSTRUCTIONS = 20_000_000
CHECKED_BYTES = 65_536  # from here on, the check and Python's reader are faster than this one
MAX_NUMBER_BYTES = 16
MAX_DEPTH = 64  # of marks: the depth to which lists and dictionaries can be nested while they are built

_KEYS = (str, int, float, bytes, type(None))


class PickleError(FleetwrightError):
    """The pickle is damaged or too large."""


class UnsafePickleError(PickleError):
    """The pickle is more than data."""


@dataclass(frozen=True, slots=True)
class Name:
    """An object that the pickle would import, as its bare name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


Arguments = tuple[Any, ...]
Calls = Mapping[Name, Callable[[Arguments], Any]]
Persistent = Callable[[Any], Any]


def read_pickle(data: bytes, *, calls: Calls | None = None, persistent: Persistent | None = None) -> Any:
    """The value that a pickle describes.

    `calls` maps a named call to its replacement, `persistent` a persistent id to its value.  Without them the pickle
    may hold neither.
    """
    try:
        if len(data) >= CHECKED_BYTES and not calls and persistent is None and _is_harmless(data):
            return pickle.loads(data)  # noqa: S301 - checked: it has plain data only
        return _Machine(data, calls or {}, persistent).run()
    except FleetwrightError:
        raise
    except (ValueError, OverflowError, struct.error, LookupError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise PickleError(f"is damaged: {error}") from error


def _is_harmless(data: bytes) -> bool:
    from fleet.pickle_check import is_harmless  # noqa: PLC0415 - compiled at import

    return is_harmless(np.frombuffer(bytearray(data), dtype=np.uint8))


class _Machine:
    """The stack, the memo and the position in the input."""

    def __init__(self, data: bytes, calls: Calls, persistent: Persistent | None) -> None:
        self.data = data
        self.at = 0
        self.calls = calls
        self.persistent = persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_INSTRUCTIONS):
            code = self.byte()
            if code == _STOP:
                return self.pop()
            step = _STEPS.get(code)
            if step is None:
                self.refuse(code)
            else:
                step(self)
        raise PickleError(f"holds more than {MAX_INSTRUCTIONS:,} pickle instructions")

    def refuse(self, code: int) -> None:
        name = next((known.name for known in pickletools.opcodes if known.code == chr(code)), f"0x{code:02x}")
        raise UnsafePickleError(f"holds the pickle instruction {name}, which no file of plain values needs")

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise PickleError("is damaged: it ends before its STOP instruction")
        value = self.data[self.at]
        self.at += 1
        return value

    def take(self, length: int) -> bytes:
        found = self.data[self.at : self.at + length]
        if len(found) < length:
            raise PickleError("is damaged: a value is cut off")
        self.at += length
        return found

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def line(self) -> str:
        end = self.data.index(b"\n", self.at)
        found = self.data[self.at : end].decode()
        self.at = end + 1
        return found

    def pop(self) -> Any:
        if not self.stack or (self.marks and self.marks[-1] >= len(self.stack)):
            raise PickleError("is damaged: an instruction lacks its value")
        return self.stack.pop()

    def mark(self) -> None:
        if len(self.marks) >= MAX_DEPTH:
            raise PickleError(f"is nested deeper than {MAX_DEPTH} levels")
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise PickleError("is damaged: a mark is missing")
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def tuple_of(self, length: int) -> None:
        found = [self.pop() for _ in range(length)]
        self.stack.append(tuple(reversed(found)))

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise PickleError("is damaged: a key lacks its value")
        target = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise PickleError("holds a dictionary whose keys are neither text nor numbers")
            target[key] = value

    def top(self, kind: type) -> Any:
        below = self.marks[-1] if self.marks else 0
        if len(self.stack) <= below or not isinstance(self.stack[-1], kind):
            raise PickleError(f"is damaged: a {kind.__name__} was expected")
        return self.stack[-1]

    def store(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def fetch(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def long(self, length: int) -> None:
        if length > MAX_NUMBER_BYTES:
            raise PickleError(f"holds a number of more than {MAX_NUMBER_BYTES} bytes")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def text(self, length: int) -> None:
        self.stack.append(self.take(length).decode("utf-8", "surrogatepass"))

    def blob(self, length: int) -> None:
        self.stack.append(self.take(length))

    def global_name(self) -> None:
        if not self.calls:
            self.refuse(_GLOBAL)
        self.stack.append(Name(self.line(), self.line()))

    def stack_global(self) -> None:
        if not self.calls:
            self.refuse(_STACK_GLOBAL)
        name, module = self.pop(), self.pop()
        self.stack.append(Name(str(module), str(name)))

    def reduce(self) -> None:
        arguments, called = self.pop(), self.pop()
        if not isinstance(called, Name) or called not in self.calls or not isinstance(arguments, tuple):
            raise UnsafePickleError(f"calls {str(called)[:80]}, which no file of plain values needs")
        self.stack.append(self.calls[called](arguments))

    def persistent_id(self) -> None:
        if self.persistent is None:
            self.refuse(_PERSISTENT)
        else:
            self.stack.append(self.persistent(self.pop()))


_U1, _U2, _I4, _U4, _U8, _F8 = map(struct.Struct, ("<B", "<H", "<i", "<I", "<Q", ">d"))
_STOP: Final = ord(".")
_GLOBAL: Final = ord("c")
_STACK_GLOBAL: Final = 0x93
_PERSISTENT: Final = ord("Q")
_STEPS: Mapping[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.byte(),  # protocol
    0x95: lambda m: m.number(_U8),  # frame
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
    ord("s"): lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    ord("u"): lambda m: m.set_items(m.since_mark()),
    ord("q"): lambda m: m.store(m.byte()),
    ord("r"): lambda m: m.store(m.number(_U4)),
    0x94: lambda m: m.store(len(m.memo)),
    ord("h"): lambda m: m.fetch(m.byte()),
    ord("j"): lambda m: m.fetch(m.number(_U4)),
    _GLOBAL: lambda m: m.global_name(),
    _STACK_GLOBAL: lambda m: m.stack_global(),
    ord("R"): lambda m: m.reduce(),
    _PERSISTENT: lambda m: m.persistent_id(),
}
