"""Creates identifiers that sort by time: UUID version 7, RFC 9562 section 5.7."""

import secrets
import uuid
from datetime import datetime

ID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_VERSION_7 = 0x7
_VARIANT_RFC = 0b10


def new_id(now: datetime) -> str:
    """Create an id: 48 bits of milliseconds, then 74 random bits."""
    milliseconds = int(now.timestamp() * 1000) & (1 << 48) - 1
    random_a, random_b = secrets.randbits(12), secrets.randbits(62)
    value = milliseconds << 80 | _VERSION_7 << 76 | random_a << 64 | _VARIANT_RFC << 62 | random_b
    return str(uuid.UUID(int=value))
