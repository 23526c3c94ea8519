"""Writes canonical JSON: equal values have equal bytes, so that a hash of the text is a hash of the value.

Keys are sorted, blanks are left out, all characters are ASCII.  ASCII escapes lone surrogates and NUL: both are legal
in JSON strings, but PostgreSQL text cannot store them.
"""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
