"""SGLang's expert-distribution recordings, as `srt/eplb/expert_distribution.py` (0.5.23) writes them.

- `stat`, `stat_approx`: `logical_count` [steps, layers, experts], summed over all ranks; a ring of steps without order,
  in which unused steps are zero.  One recording is one window.
- `per_pass`: one file per rank, each record with `global_physical_count` [layers, slots] of that rank's tokens.
- `per_token`: the same, and `topk_ids_of_layer` [layers, tokens, k], slots too, -1 where there is none.

`last_physical_to_logical_map` translates slots to experts.  The layers are all of the model's, dense ones included.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.formats.arrays import Numbers
from placement.formats.counts import Counts, Routed, of_whole_model, routed_of_whole_model
from placement.formats.json_csv import nested_floats

COUNT, RECORDS, MAP = "logical_count", "records", "last_physical_to_logical_map"


def is_recording(value: Any) -> bool:
    return isinstance(value, Mapping) and (COUNT in value or (RECORDS in value and MAP in value))


def counts_of(recording: Mapping[str, Any]) -> Counts:
    if COUNT not in recording:
        return _counts_of_records(recording)
    found = recording[COUNT]
    tokens: Floats = found.astype(np.float64) if isinstance(found, np.ndarray) else nested_floats(found, field=COUNT)
    if tokens.ndim == 2:
        tokens = tokens[np.newaxis]
    steps = of_whole_model(tokens, field=COUNT)
    return replace(steps, tokens=steps.tokens.sum(axis=0, keepdims=True))


def routed_of(recording: Mapping[str, Any]) -> Routed:
    """The experts of every token, of a recording made per token."""
    if COUNT in recording:
        raise RuleError(
            [((COUNT,), "holds no single tokens; record with --expert-distribution-recorder-mode per_token")]
        )
    expert_of_slot = _map_of(recording)
    passes = [_tokens_of(record, at, expert_of_slot) for at, record in enumerate(_records_of(recording))]
    width = {found.shape[2] for found in passes if found.size}
    if len(width) != 1:
        raise RuleError([((RECORDS,), "must hold tokens, each with as many experts in every record")])
    experts: Numbers = np.concatenate([found for found in passes if found.size])
    chosen: npt.NDArray[np.bool_] = np.greater_equal(experts, 0)
    dense = ~np.any(chosen, axis=(0, 2))
    whole = np.all(chosen.all(axis=2) | dense, axis=1)  # the others are padding of a batch
    if dense.all() or not whole.any():
        raise RuleError([((RECORDS,), "must hold a token with experts in some layer")])
    return routed_of_whole_model(experts[whole], known_experts=int(expert_of_slot.max()) + 1)


def _records_of(recording: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    records = recording[RECORDS]
    if not isinstance(records, list) or not records or not all(isinstance(record, Mapping) for record in records):
        raise RuleError([((RECORDS,), "must be a list of at least one record")])
    return records


def _map_of(recording: Mapping[str, Any]) -> Ints:
    found = recording[MAP]
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "iu" or not found.size:
        raise RuleError([((MAP,), "must be a tensor of whole numbers, layers x slots")])
    if found.min() < 0:
        raise RuleError([((MAP,), f"must name experts from 0 up, got {int(found.min())}")])
    return found.astype(np.int64)


def _counts_of_records(recording: Mapping[str, Any]) -> Counts:
    expert_of_slot = _map_of(recording)
    counted = np.zeros(expert_of_slot.shape)
    for at, record in enumerate(_records_of(recording)):
        found = record.get("global_physical_count")
        if not isinstance(found, np.ndarray) or found.shape != counted.shape:
            message = f"must be a tensor of layers x slots, {counted.shape} as {MAP}"
            raise RuleError([((RECORDS, at, "global_physical_count"), message)])
        counted += found
    layers, experts = len(counted), int(expert_of_slot.max()) + 1
    places = expert_of_slot + np.arange(layers)[:, np.newaxis] * experts
    tokens: Floats = np.bincount(places.ravel(), counted.ravel(), layers * experts).astype(np.float64)
    return of_whole_model(tokens.reshape(1, layers, experts), field=RECORDS, of_one_rank=True)


def _tokens_of(record: Mapping[str, Any], at: int, expert_of_slot: Ints) -> Numbers:
    """[tokens, layers, k] of one forward pass: experts, or -1."""
    field = (RECORDS, at, "topk_ids_of_layer")
    found = record.get("topk_ids_of_layer")
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.dtype.kind not in "iu":
        raise RuleError([(field, "must be a tensor of whole numbers, layers x tokens x k; recorded per token")])
    layers, slots = expert_of_slot.shape
    if len(found) != layers:
        raise RuleError([(field, f"must have the {layers} layers of {MAP}, got {len(found)}")])
    if found.size and not (found.min() >= -1 and found.max() < slots):
        raise RuleError([(field, f"must name slots from 0 to {slots - 1}, or -1 for none")])
    used = found[:, :, ~(found < 0).all(axis=(0, 1))]  # the buffer holds more experts than a model may use
    taken = expert_of_slot[np.arange(layers)[:, np.newaxis, np.newaxis], used]
    return np.where(used < 0, -1, taken).transpose(1, 0, 2).astype(np.int16)
