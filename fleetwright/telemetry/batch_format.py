"""The format of an observation batch: zlib of one JSON object.  `deploy.telemetry.batch_codec` reads it."""

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

VERSION: Final = 2
MAX_RANKS: Final = 1 << 17
CONTENT_TYPE: Final = "application/x-fleetwright-observations"
PATH: Final = "/v1/observations"

Row = list[Any]  # [at_s, node, rank, peer, kind, values]; times count from the batch's sent_s


def pack(
    *,
    session: str,
    number: int,
    base: int | None,
    node: int,
    sent_s: float,
    polls: Sequence[Any],
    others: Sequence[Row],
    rank: int | None = None,
    prober: bool = False,
) -> bytes:
    """Return the body of one batch.  `base` is the number of the batch that this one builds on."""
    document = {
        "v": VERSION,
        "session": session,
        "number": number,
        "base": base,
        "node": node,
        "sent_s": sent_s,
        "looks": polls,
        "others": others,
    }
    if rank is not None:
        document["rank"] = rank
    if prober:
        document["prober"] = True
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 6)
