"""Routed experts of vLLM's `--enable-return-routed-experts`: arrays, or responses that carry them.

Read in `routed_experts_capturer.py` and `serial_utils.py` (0.33): an array [tokens, layers, k] of one byte per number
up to 256 experts and of two above, with all layers of the model, dense ones being zero; in a response it is
base64-encoded, as an .npy file, in `choices[i].routed_experts`.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import numpy as np

from fleet.documents import Path, RuleError
from placement.formats.arrays import NPY_START, Numbers, read_npy
from placement.formats.counts import Routed, routed_of_whole_model

FIELD = "routed_experts"


def is_array(found: Numbers) -> bool:
    """Whether an array is one of vLLM's: counts of tokens would not be unsigned and this narrow."""
    return found.ndim == 3 and found.dtype.kind == "u" and found.dtype.itemsize <= 2


def responses_in(value: Any) -> list[Any]:
    """The responses of a document: itself, or the entries of a list of them; none if it holds anything else."""
    entries = value if isinstance(value, list) else [value]
    if entries and all(isinstance(entry, dict) and (FIELD in entry or "choices" in entry) for entry in entries):
        return entries
    return []


def routed_of(responses: list[Any]) -> Routed:
    arrays = [found for at, response in enumerate(responses) for found in _arrays(response, (at,))]
    if not arrays:
        raise RuleError([((FIELD,), "is in no response; start vLLM with --enable-return-routed-experts")])
    if len({found.shape[1:] for found in arrays}) > 1:
        raise RuleError([((FIELD,), "must have the same layers and experts per token in every response")])
    return routed_of_whole_model(np.concatenate(arrays))


def _arrays(response: dict[str, Any], path: Path) -> Iterator[Numbers]:
    choices = response.get("choices", [response])
    for at, choice in enumerate(choices if isinstance(choices, list) else []):
        found = choice.get(FIELD) if isinstance(choice, dict) else None
        if found is not None:
            yield _array(found, (*path, "choices", at, FIELD))


def _array(found: Any, path: Path) -> Numbers:
    try:
        data = base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise RuleError([(path, "must be an .npy array in base64")]) from error
    if not data.startswith(NPY_START):
        raise RuleError([(path, "must be an .npy array in base64; numbers without their shape are ambiguous")])
    array = read_npy(data, path=path)
    if array.ndim != 3 or array.dtype.kind not in "iu":
        raise RuleError([(path, f"must be whole numbers, tokens x layers x k, got {array.dtype} of {array.shape}")])
    return array
