"""Creates identifiers that sort by time: UUID version 7, RFC 9562 section 5.7.

Lists are ordered by id.  A clock that steps back would put new objects behind old ones, so a caller passes the newest
stored id of the list: the new id is greater, whatever the clock (RFC 9562 section 6.2).  Over several replicas this
holds for every object that was stored before the new id is made.  Objects that are made at the same time have no order.
"""

import secrets
import uuid
from datetime import datetime

ID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_VERSION_7 = 0x7
_VARIANT_RFC = 0b10
_STEP_BITS = 32  # far fewer than the 74 below the time


def new_id(now: datetime, *, after: str | None = None) -> str:
    """Create an id: 48 bits of milliseconds, then 74 random bits; greater than `after`."""
    milliseconds = int(now.timestamp() * 1000) & (1 << 48) - 1
    number = milliseconds << 74 | secrets.randbits(74)
    if after is not None and number <= (last := _number(after)):
        number = last + 1 + secrets.randbits(_STEP_BITS)
    time_and_a, random_b = number >> 62, number & (1 << 62) - 1
    milliseconds, random_a = time_and_a >> 12, time_and_a & (1 << 12) - 1
    value = milliseconds << 80 | _VERSION_7 << 76 | random_a << 64 | _VARIANT_RFC << 62 | random_b
    return str(uuid.UUID(int=value))


def _number(identifier: str) -> int:
    """Return the 122 bits of an id beside version and variant."""
    value = uuid.UUID(identifier).int
    return value >> 80 << 74 | (value >> 64 & (1 << 12) - 1) << 62 | value & (1 << 62) - 1
