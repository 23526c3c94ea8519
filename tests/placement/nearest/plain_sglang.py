"""SGLang's rule in plain Python with the random module, as the reference of the compiled choices."""

import random

import numpy as np

from placement.arrays import Ints
from placement.layout import Layout


def near(copies: list[int], gpu: int, layout: Layout) -> int | None:
    """The copy that a GPU chooses without a random draw, if any."""
    if len(copies) == 1:
        return copies[0]
    own = [slot for slot in copies if layout.gpu_of_slot[slot] == gpu]
    beside = [slot for slot in copies if layout.node_of_slot[slot] == layout.node_of_gpu[gpu]]
    if own:
        return own[0]
    return beside[0] if 0 < len(beside) < len(copies) else None


def deal(copies: list[int], gpus: int, generator: random.Random) -> list[int]:
    """One copy for each of the given number of GPUs."""
    whole, rest = divmod(gpus, len(copies))
    cards = copies * whole + generator.sample(copies, rest)
    generator.shuffle(cards)
    return cards


def choices(expert_of_slot: Ints, *, experts: int, layout: Layout) -> Ints:
    """[layers, experts, GPUs]: each GPU processes all layers with its own generator."""
    found = np.empty((len(expert_of_slot), experts, layout.gpus), np.int64)
    for gpu in range(layout.gpus):
        generator = random.Random(42)
        for layer, row in enumerate(expert_of_slot):
            for expert in range(experts):
                copies = np.flatnonzero(row == expert).tolist()
                mine = near(copies, gpu, layout)
                far = [other for other in range(layout.gpus) if near(copies, other, layout) is None]
                if far and mine is None:
                    cards = dict(zip(far, deal(copies, len(far), generator), strict=True))
                    mine = cards.get(gpu, mine)
                assert mine is not None
                found[layer, expert, gpu] = mine
    return found
