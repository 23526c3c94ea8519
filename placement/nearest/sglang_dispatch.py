"""The copy to which each GPU sends an expert's tokens, as SGLang 0.5.23 decides when it loads a map.

`static` dispatch is a table [GPUs, layers, experts] of slots, made once (`expert_location.py`).  Every GPU makes its
own row.  It first reduces each expert to the nearest copy where there is one: a copy on the GPU itself, else the first
on its node, by slot, unless all copies lie there.  It then goes through layers and experts in order and, for each
expert with several copies left, deals the copies to the far GPUs: each copy as often as whole numbers allow, the rest
a sample, all shuffled.  From the result it reads its own entry.  Each GPU draws only for experts far from it, so GPUs
of different nodes read different shuffles, and the counts are not even.

The random numbers are those of CPython's `random.Random(42)`, its `sample` and `shuffle`.  The generator is a Mersenne
Twister and takes 32 bits at a time.  All its 32-bit numbers are generated at once, and every GPU reads them with its
own cursor.  A number below n is the top bits of the next number, as many as n has, repeated until it is below n.
"""

import math
import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import int64, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Ints
from placement.dispatch import LAYOUT, slots_of_experts
from placement.layout import LayoutArrays

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


class Table(NamedTuple):
    """The generator's output and the cursor of each GPU."""

    gpu_of_slot: Ints
    node_of_gpu: Ints
    words: Words
    cursors: Ints  # [GPUs]


@jit_inner
def choose(copies: Ints, table: Table, found: Ints) -> None:
    """[GPUs]: the slot to which each sends one expert's tokens; `copies`, rising, are the expert's slots."""
    gpus, far = len(found), 0
    for gpu in range(gpus):
        found[gpu] = _near(copies, table, gpu)
        far += found[gpu] < 0
    if far == 0:
        return
    place, before, after = 0, -1, -1
    dealt = np.empty(far, np.int64)
    for gpu in range(gpus):
        if found[gpu] >= 0:
            continue
        if table.cursors[gpu] != before:  # GPUs with equal cursors draw the same numbers
            before = table.cursors[gpu]
            after = _deal(copies, table.words, before, dealt)
        table.cursors[gpu] = after
        found[gpu] = dealt[place]
        place += 1


@jit_inner
def _near(copies: Ints, table: Table, gpu: int) -> int:
    """The near copy, for which a GPU does not draw, or -1."""
    if len(copies) == 1:
        return int(copies[0])
    first, there = -1, 0
    for slot in copies:
        owner = table.gpu_of_slot[slot]
        if owner == gpu:
            return int(slot)
        if table.node_of_gpu[owner] == table.node_of_gpu[gpu]:
            there += 1
            if first < 0:
                first = slot
    return first if there < len(copies) else -1


@jit_inner
def _deal(copies: Ints, words: Words, cursor: int, dealt: Ints) -> int:
    """One copy for each far GPU; returns the new cursor."""
    even = len(dealt) // len(copies) * len(copies)
    for i in range(even):
        dealt[i] = copies[i % len(copies)]
    cursor = sample(words, cursor, copies, len(dealt) - even, dealt[even:])
    return shuffle(words, cursor, dealt)


@jit_entry(int64[:, :, ::1](int64[:, ::1], LAYOUT, int64, uint64[::1]))
def choose_slots(expert_of_slot: Ints, layout: LayoutArrays, experts: int, words: Words) -> Ints:
    """[layers, experts, GPUs]: slots; [0, 0, 0] is -1 where the generator's output did not suffice."""
    gpu_of_slot, node_of_gpu, _, _ = layout
    found = np.empty((len(expert_of_slot), experts, len(node_of_gpu)), np.int64)
    table = Table(gpu_of_slot, node_of_gpu, words, np.zeros(len(node_of_gpu), np.int64))
    first, slots = np.empty(experts + 1, np.int64), np.empty(len(gpu_of_slot), np.int64)
    for layer in range(len(expert_of_slot)):
        slots_of_experts(expert_of_slot[layer], first, slots)
        for expert in range(experts):
            choose(slots[first[expert] : first[expert + 1]], table, found[layer, expert])
    if table.cursors.max() > len(words):
        found[0, 0, 0] = -1
    return found
