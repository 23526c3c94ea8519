"""SGLang's random numbers: CPython's `random.Random(42)`, its `sample` and `shuffle`, in compiled code.

CPython's generator is the Mersenne Twister and takes 32 bits at a time.  All its 32-bit numbers are generated at once,
and every GPU reads them with its own cursor.  A number below n is the top bits of the next number, as many as n has,
repeated until it is below n.  Tests compare with the interpreter's generator.
"""

import math
import random

import numpy as np
import numpy.typing as npt

from fleet.numba_cache import jit_inner
from placement.arrays import Ints

SEED = 42  # SGLang's, in every version read

Words = npt.NDArray[np.uint64]  # each below 2^32


def words(count: int) -> Words:
    """The first 32-bit numbers after seeding."""
    _, state, _ = random.Random(SEED).getstate()
    generator = np.random.MT19937()
    generator.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(state[:-1], dtype=np.uint64), "pos": state[-1]},
    }
    return generator.random_raw(count)


@jit_inner
def below(words: Words, cursor: int, limit: int) -> tuple[int, int]:
    """A number from 0 to limit - 1, and the new cursor; 0 past the last 32-bit number, which the caller checks."""
    bits = 0
    while (limit >> bits) > 0:
        bits += 1
    while cursor < len(words):
        drawn = np.int64(words[cursor] >> np.uint64(32 - bits))
        cursor += 1
        if drawn < limit:
            return int(drawn), cursor
    return 0, cursor + 1


@jit_inner
def sample(words: Words, cursor: int, among: Ints, count: int, found: Ints) -> int:
    """`count` of `among` at distinct positions, into the front of `found`; returns the new cursor."""
    places = len(among)
    small = 21
    if count > 5:
        small += 4 ** math.ceil(math.log(count * 3) / math.log(4))
    if places > small:
        return _sample_few(words, cursor, among, count, found)
    pool = among.copy()
    for i in range(count):
        place, cursor = below(words, cursor, places - i)
        found[i] = pool[place]
        pool[place] = pool[places - i - 1]
    return cursor


@jit_inner
def _sample_few(words: Words, cursor: int, among: Ints, count: int, found: Ints) -> int:
    """The same for many positions: a repeated draw is drawn again."""
    drawn = np.zeros(len(among), np.bool_)
    for i in range(count):
        place, cursor = below(words, cursor, len(among))
        while drawn[place] and cursor <= len(words):
            place, cursor = below(words, cursor, len(among))
        drawn[place] = True
        found[i] = among[place]
    return cursor


@jit_inner
def shuffle(words: Words, cursor: int, values: Ints) -> int:
    """In place; returns the new cursor."""
    for last in range(len(values) - 1, 0, -1):
        place, cursor = below(words, cursor, last + 1)
        values[last], values[place] = values[place], values[last]
    return cursor
