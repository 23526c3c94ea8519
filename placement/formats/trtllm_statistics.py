"""TensorRT-LLM's statistics of routed experts (EXPERT_STATISTIC_PATH), as its wide-EP balancer's tools read them.

Read in `_torch/.../expert_statistic.py` and `examples/wide_ep/ep_load_balancer/utils.py` (main, 2026): one file
`rank<r>.safetensors` per rank, a tensor `<iteration>_<layer>` of tokens per expert for each iteration and layer, layers
numbered in the whole model; ranks add up.  With raw recording, `rank<r>_raw.safetensors` holds under the same names the
experts of each token, [tokens, k].  The iterations of a recording are one window.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from fleet.documents import RuleError
from placement.arrays import MAX_LAYERS
from placement.formats.arrays import Numbers
from placement.formats.counts import Counts, Routed

_NAME = re.compile(r"([0-9]{1,18})_([0-9]{1,4})")


def statistics(tensors: Mapping[str, Numbers]) -> Counts | Routed:
    """Counts, or the tokens of a raw recording."""
    by_layer = _by_layer(tensors)
    dimensions = {found.ndim for rows in by_layer.values() for found in rows.values()}
    if dimensions == {1}:
        return _counts(by_layer)
    if dimensions == {2}:
        return _routed(by_layer)
    raise RuleError([((), "must hold tensors of one dimension (tokens per expert) or of two (tokens x experts each)")])


def _by_layer(tensors: Mapping[str, Numbers]) -> dict[int, dict[int, Numbers]]:
    """Layer -> iteration -> tensor, both rising."""
    found: dict[int, dict[int, Numbers]] = defaultdict(dict)
    for name, tensor in tensors.items():
        matched = _NAME.fullmatch(name)
        if matched is None or int(matched[2]) >= MAX_LAYERS or tensor.dtype.kind not in "iu":
            raise RuleError([((name,), "must be whole numbers under a name <iteration>_<layer>, such as 100_3")])
        found[int(matched[2])][int(matched[1])] = tensor
    if not found:
        raise RuleError([((), "must hold at least one tensor <iteration>_<layer>")])
    ordered = {layer: dict(sorted(found[layer].items())) for layer in sorted(found)}
    first = next(iter(ordered))
    for layer, rows in ordered.items():
        if rows.keys() != ordered[first].keys():
            raise RuleError([((f"layer {layer}",), f"must have been recorded in the same iterations as layer {first}")])
    return ordered


def _counts(by_layer: Mapping[int, Mapping[int, Numbers]]) -> Counts:
    experts = {len(found) for rows in by_layer.values() for found in rows.values()}
    if len(experts) > 1:
        raise RuleError([((), f"must have as many experts in each layer and iteration, got {sorted(experts)}")])
    tokens = np.array([sum(found.astype(np.float64) for found in rows.values()) for rows in by_layer.values()])
    return Counts(tokens[np.newaxis], tuple(by_layer), of_one_rank=True)


def _routed(by_layer: Mapping[int, Mapping[int, Numbers]]) -> Routed:
    """A token keeps its position in the batch from layer to layer of one iteration."""
    rows = list(by_layer.values())
    shapes = [[found.shape for found in row.values()] for row in rows]
    if any(of_layer != shapes[0] for of_layer in shapes):
        raise RuleError([((), "must hold as many tokens in every layer of an iteration")])
    if len({width for _, width in shapes[0]}) > 1:
        raise RuleError([((), "must hold as many experts for each token")])
    experts = np.stack([np.concatenate(list(row.values())) for row in rows], axis=1)
    return Routed(experts, tuple(by_layer))
