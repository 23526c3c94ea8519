"""Plans against rule `nearest` as it is on average."""

import numpy as np

from placement.arrays import Floats, Ints
from placement.layout import Layout
from placement.slots import check_room, check_slots

TOLERANCE = 2e-4  # of the fullest GPU over even: loads of the next window differ by far more
ROUNDS = 2000  # steps per layer; what is measured ends within 200


def balanced_nearest(tokens: Floats, *, layout: Layout, start: Ints | None = None) -> Ints:
    """[layers, slots]: the plan whose fullest GPU under rule `nearest` is least full, from tokens [layers, experts].

    Without `start` one is made; with it, that plan is improved and never made worse.
    """
    check_room(experts=tokens.shape[1], layout=layout)
    if start is not None:
        check_slots(start, experts=tokens.shape[1], layout=layout)
    from placement.nearest.kernel import plan  # noqa: PLC0415  # compiles when first used

    return plan(
        np.ascontiguousarray(tokens, dtype=np.float64),
        np.empty((0, layout.slots), np.int64) if start is None else np.ascontiguousarray(start, dtype=np.int64),
        layout.gpu_of_slot,
        layout.node_of_gpu,
        layout.first_slot,
        layout.shares,
        TOLERANCE,
        ROUNDS,
    )
