"""Checks a pickle in one pass: whether Python's own reader can read it without harm.

The check follows the types on the stack.  It accepts values, lists, tuples and dictionaries with plain keys, lengths
within the input, and memo indices in order.  It refuses in doubt: `fleet.safe_pickle` then reads the pickle itself.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleet.numba_cache import jit_entry, jit_inner

MAX_DEPTH: Final = 64
MAX_LONG: Final = 16  # bytes of a number
MAX_VALUES: Final = 4_000_000  # each costs about 90 bytes
PLAIN, TUPLE, LIST, DICT, NUMBER = 0, 1, 2, 3, 4  # a large number or a float is no plain key: many can collide


@jit_inner
def _little(data: NDArray[np.uint8], start: int, size: int) -> int:
    value = 0
    for index in range(size - 1, -1, -1):
        value = value * 256 + data[start + index]
    return value


@jit_entry("b1(u1[::1])")
def is_harmless(data: NDArray[np.uint8]) -> bool:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one case per instruction
    size = len(data)
    stack = np.zeros(size + 1, dtype=np.uint8)
    memo = np.zeros(size + 1, dtype=np.uint8)
    marks = np.zeros(MAX_DEPTH, dtype=np.int64)
    height, memos, depth, at, values = 0, 0, 0, 0, 0
    while at < size:
        code = data[at]
        at += 1
        base = marks[depth - 1] if depth else 0
        if code == 0x2E:  # STOP
            return height == 1 and depth == 0 and at == size
        # The bytes of the instruction's argument: fixed, and of a length that it begins with.
        fixed = 0
        if code in (0x80, 0x4B, 0x68, 0x71, 0x8A, 0x8C, 0x43):
            fixed = 1
        elif code == 0x4D:
            fixed = 2
        elif code in (0x4A, 0x58, 0x42, 0x6A, 0x72):
            fixed = 4
        elif code in (0x47, 0x8D, 0x8E, 0x95):
            fixed = 8
        if fixed > size - at:
            return False
        argument = _little(data, at, fixed) if fixed and code not in (0x47, 0x4A) else 0
        if argument < 0:
            return False
        at += fixed
        values += 1
        if values > MAX_VALUES:
            return False
        if code in (0x8A, 0x8C, 0x43, 0x58, 0x42, 0x8D, 0x8E):  # LONG1, texts, bytes
            if argument > size - at or (code == 0x8A and argument > MAX_LONG):
                return False
            at += argument
            stack[height] = NUMBER if code == 0x8A else PLAIN
            height += 1
        elif code in (0x4E, 0x88, 0x89, 0x4B, 0x4D, 0x4A, 0x47):  # None, True, False, numbers
            stack[height] = NUMBER if code == 0x47 else PLAIN
            height += 1
        elif code == 0x29:  # EMPTY_TUPLE
            stack[height] = TUPLE
            height += 1
        elif code == 0x5D:  # EMPTY_LIST
            stack[height] = LIST
            height += 1
        elif code == 0x7D:  # EMPTY_DICT
            stack[height] = DICT
            height += 1
        elif code == 0x28:  # MARK
            if depth == MAX_DEPTH:
                return False
            marks[depth] = height
            depth += 1
        elif code == 0x74:  # TUPLE
            if depth == 0:
                return False
            depth -= 1
            height = marks[depth]
            stack[height] = TUPLE
            height += 1
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            length = code - 0x84
            if height - base < length:
                return False
            height -= length
            stack[height] = TUPLE
            height += 1
        elif code in (0x61, 0x65):  # APPEND, APPENDS
            if code == 0x65:
                if depth == 0:
                    return False
                depth -= 1
                height = marks[depth]
                base = marks[depth - 1] if depth else 0
            else:
                height -= 1
            if height <= base or stack[height - 1] != LIST:
                return False
        elif code in (0x73, 0x75):  # SETITEM, SETITEMS
            first = height - 2
            if code == 0x75:
                if depth == 0:
                    return False
                depth -= 1
                first = marks[depth]
                base = marks[depth - 1] if depth else 0
            if (height - first) % 2 or first <= base or stack[first - 1] != DICT:
                return False
            for index in range(first, height, 2):
                if stack[index] != PLAIN:
                    return False
            height = first
        elif code in (0x71, 0x72, 0x94):  # BINPUT, LONG_BINPUT, MEMOIZE
            index = memos if code == 0x94 else argument
            if height <= base or index > memos:
                return False
            memo[index] = stack[height - 1]
            memos = max(memos, index + 1)
        elif code in (0x68, 0x6A):  # BINGET, LONG_BINGET
            if argument >= memos:
                return False
            stack[height] = memo[argument]
            height += 1
        elif code == 0x95:  # FRAME
            if argument > size - at:
                return False
        elif code != 0x80:  # PROTO
            return False
    return False
