"""A short name for what is about to be done, as operators approve it.  Pure."""

import hashlib
import json
from typing import Any


def digest_of_json(said: Any) -> str:
    """The same for the same values, whatever process says it; mappings in the order in which they are given."""
    return hashlib.sha256(json.dumps(said, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
