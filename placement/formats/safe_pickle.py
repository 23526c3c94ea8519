"""What a pickle says, read as data: numbers, text, lists, dictionaries and a few named calls.  Nothing it says is run.

A pickle is a program for a small stack machine, and Python's own reader imports whatever it names.  PyTorch's files
carry one.  This reader walks its instructions (`pickletools` documents them, and only decodes) and knows just those
that build plain values; a call is a lookup in a table that the caller gives, and every other instruction, name or
object state is refused.
"""

import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.documents import RuleError

MAX_INSTRUCTIONS = 20_000_000
Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """Something a pickle would import, as its bare name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_MARK = object()
_PLAIN = frozenset(
    (
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINBYTES",
        "SHORT_BINBYTES",
    )
)
_CONSTANTS: Mapping[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES: Mapping[str, int] = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SILENT = frozenset(("PROTO", "FRAME"))


def read_pickle(data: bytes, *, calls: Mapping[Name, Callable[[Arguments], Any]], refer: Callable[[Any], Any]) -> Any:
    """The value that a pickle describes.

    `calls` says what a named call with its arguments stands for, `refer` what a persistent reference does.
    """
    try:
        return _run(_Machine(calls, refer), data)
    except RuleError:
        raise
    except (ValueError, OverflowError, struct.error, IndexError, KeyError, TypeError) as error:
        raise RuleError([((), f"is damaged: {error}")]) from error


def _refusal(message: str) -> RuleError:
    return RuleError([((), message)])


def _run(machine: "_Machine", data: bytes) -> Any:
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if count >= MAX_INSTRUCTIONS:
            raise _refusal(f"holds more than {MAX_INSTRUCTIONS:,} pickle instructions")
        if instruction.name == "STOP":
            return machine.pop()
        machine.step(instruction.name, argument)
    raise _refusal("ends before its last pickle instruction")


class _Machine:
    """The stack, the values kept for later, and one method per group of instructions."""

    def __init__(self, calls: Mapping[Name, Callable[[Arguments], Any]], refer: Callable[[Any], Any]) -> None:
        self._calls = calls
        self._refer = refer
        self._stack: list[Any] = []
        self._kept: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        if name in _PLAIN:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self._stack.append(tuple(self._last(_TUPLES[name])))
        elif name not in _SILENT:
            handler = _HANDLERS.get(name)
            if handler is None:
                raise _refusal(f"holds the pickle instruction {name}, which no file of plain values needs")
            handler(self, argument)

    def pop(self) -> Any:
        """The value on top."""
        if not self._stack or self._stack[-1] is _MARK:
            raise _refusal("is damaged: an instruction lacks its value")
        return self._stack.pop()

    def _last(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def _since_mark(self) -> list[Any]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                taken = self._stack[place + 1 :]
                del self._stack[place:]
                return taken
        raise _refusal("is damaged: a mark is missing")

    def mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def new_list(self, _: Any) -> None:
        self._stack.append([])

    def new_dict(self, _: Any) -> None:
        self._stack.append({})

    def new_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def append(self, _: Any) -> None:
        self._extend([self.pop()])

    def appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._top(list)
        target.extend(values)

    def set_item(self, _: Any) -> None:
        self._set(self._last(2))

    def set_items(self, _: Any) -> None:
        self._set(self._since_mark())

    def _set(self, pairs: list[Any]) -> None:
        target = self._top(dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int):
                raise _refusal("holds a dictionary whose keys are neither text nor whole numbers")
            target[key] = value

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise _refusal(f"is damaged: a {kind.__name__} was expected")
        return self._stack[-1]

    def keep(self, number: int) -> None:
        self._kept[number] = self.pop()
        self._stack.append(self._kept[number])

    def memoize(self, _: Any) -> None:
        self.keep(len(self._kept))

    def fetch(self, number: int) -> None:
        self._stack.append(self._kept[number])

    def global_name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(Name(module, name))

    def stack_global(self, _: Any) -> None:
        module, name = self._last(2)
        self._stack.append(Name(str(module), str(name)))

    def reduce(self, _: Any) -> None:
        called, arguments = self._last(2)
        if not isinstance(called, Name) or called not in self._calls or not isinstance(arguments, tuple):
            raise _refusal(f"calls {called}, which no file of plain values needs")
        self._stack.append(self._calls[called](arguments))

    def persistent(self, _: Any) -> None:
        self._stack.append(self._refer(self.pop()))


_HANDLERS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "EMPTY_LIST": _Machine.new_list,
    "EMPTY_DICT": _Machine.new_dict,
    "TUPLE": _Machine.new_tuple,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "BINPUT": _Machine.keep,
    "LONG_BINPUT": _Machine.keep,
    "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.fetch,
    "LONG_BINGET": _Machine.fetch,
    "GLOBAL": _Machine.global_name,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "BINPERSID": _Machine.persistent,
}
