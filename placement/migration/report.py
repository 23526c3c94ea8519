"""The schedule of a migration for placement.json."""

import numpy as np

from placement.arrays import Floats, Ints
from placement.document import MoveBatch, Moves
from placement.layout import Layout
from placement.migration import Batch, Links, moved_copies, schedule_moves
from placement.options import Dispatch
from placement.problem import Pace


def moves(
    before: Ints,
    after: Ints,
    tokens: Floats,
    *,
    layout: Layout,
    rule: Dispatch,
    layers: tuple[int, ...],
    pace: Pace,
) -> Moves:
    """The moves between two placements whose common copies have equal slots; `layers` are numbers in the model."""
    node_gb_per_s = pace.node_gb_per_s or pace.move_gb_per_s * int(np.bincount(layout.node_of_gpu).max())
    links = Links(pace.move_gb_per_s, node_gb_per_s, share=1.0)
    found = schedule_moves(before, after, tokens, layout=layout, rule=rule, expert_bytes=pace.expert_bytes, links=links)
    return Moves(
        copies=moved_copies(before, after, layout=layout),
        bytes=round(found.moved_bytes),
        duration_s=found.duration_s,
        expert_bytes=pace.expert_bytes,
        gpu_gb_per_s=links.gpu_gb_per_s,
        node_gb_per_s=links.node_gb_per_s,
        batches=tuple(_batch(batch, layout, layers) for batch in found.batches),
    )


def _batch(batch: Batch, layout: Layout, layers: tuple[int, ...]) -> MoveBatch:
    here = layout.gpu_of_slot[list(batch.slots)].tolist()
    return MoveBatch(
        layer=layers[batch.layer],
        copies=sum(gpu != source for gpu, source in zip(here, batch.sources, strict=True)),
        start_s=batch.start_s,
        end_s=batch.end_s,
        imbalance=batch.mean_imbalance,
        slots=batch.slots,
        sources=batch.sources,
        beside=batch.beside,
    )
