"""The messages between controller and replicas: the command and the replica status.  Light to import.

The command is in Ray Serve's `user_config` under the key `expert_map`, the same for all replicas of a deployment.
docs/explanation/runtime/expert-rollout.md describes its fields.  A map travels as the engine's file, packed, with a
digest of the file.  Commands come from outside, so every field is checked: a damaged command counts as none.
"""

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

KEY = "expert_map"
MAX_FILE_BYTES = 1 << 24
DIGEST_CHARS = 32


class DamagedError(ValueError):
    """The command is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFile:
    """One engine's file of one stored placement."""

    placement_id: str
    digest: str
    packed: str = field(repr=False)

    @classmethod
    def of(cls, text: str, *, placement_id: str) -> "MapFile":
        """Pack a file.  ValueError when it is too large for a command."""
        data = text.encode()
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"the engine's file must be at most {MAX_FILE_BYTES:,} bytes, got {len(data):,}")
        packed = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
        return cls(placement_id=placement_id, digest=digest_of(data), packed=packed)

    def text(self) -> str:
        """Return the file.  Raise DamagedError unless its digest matches."""
        try:
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(base64.b64decode(self.packed, validate=True), MAX_FILE_BYTES)
        except (binascii.Error, zlib.error, ValueError) as error:
            raise DamagedError(f"the packed file cannot be unpacked: {error}") from error
        if not unpacking.eof or digest_of(data) != self.digest:
            raise DamagedError("the packed file does not match its digest")
        return data.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCommand:
    number: int
    next: MapFile | None
    good: MapFile | None
    attempt: int = 1
    refusal: str | None = None
    turn: str | None = None

    @property
    def goal(self) -> MapFile | None:
        """Return the map that the replica with the turn loads."""
        return self.good if self.refusal is not None else self.next

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """The layout that a replica's engine requires of its maps; None: not declared."""

    engine: str
    version: str | None = None
    layers: int | None = None  # MoE layers only
    experts: int | None = None
    slots: int | None = None  # of one layer, on all GPUs together
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    replica_id: str
    stamp: str  # of the last received user_config
    number: int  # of the last valid command; 0: none
    shape: EngineShape
    loaded: str | None = None  # digest; None: the engine's own placement
    placement_id: str | None = None  # of the loaded map
    changing: bool = False  # from the receipt of its turn until it serves again
    refusals: Mapping[str, str] = field(default_factory=dict)  # digest -> reason, of this attempt


def stamp_of(user_config: Any) -> str:
    """Return a digest of a whole user_config, equal in Serve's responses and in a replica."""
    return digest_of(json.dumps(user_config or {}, sort_keys=True).encode())


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def digest(file: MapFile | None) -> str | None:
    return None if file is None else file.digest


def read_command(document: Any) -> RolloutCommand:
    """Return the command in a user_config value.  Raise DamagedError when there is none."""
    match document:
        case {
            "number": int(number),
            "next": next_map,
            "good": good,
            "attempt": int(attempt),
            "refusal": None | str() as refusal,
            "turn": None | str() as turn,
        } if number >= 1:
            return RolloutCommand(
                number=number,
                next=_read_file(next_map),
                good=_read_file(good),
                attempt=attempt,
                refusal=refusal,
                turn=turn,
            )
    raise DamagedError("it must hold number, next, good, attempt, refusal and turn")


def _read_file(document: Any) -> MapFile | None:
    match document:
        case None:
            return None
        case {"placement_id": str(placement_id), "digest": str(found), "packed": str(packed)}:
            file = MapFile(placement_id=placement_id, digest=found, packed=packed)
            file.text()
            return file
    raise DamagedError("a map must hold placement_id, digest and packed")
