"""The digest of a change set, which operators approve.  Pure."""

import hashlib
import json
from typing import Any


def digest_of_json(value: Any) -> str:
    """Return a digest that is equal for equal values in any process; the order of mapping entries matters."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
