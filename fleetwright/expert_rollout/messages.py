"""What the controller orders and what a replica says: the two documents between them.  Light to import.

The order stands in Ray Serve's `user_config` under the key `expert_map`, the same for all replicas of a deployment:

    number    rises with each order
    next      the map to bring in; null: the engine's own placement
    good      the map that all had when the roll began: what new replicas start with, and what the others go back to
    attempt   the operator's count of tries: a refusal is of one map and one attempt
    refusal   why `next` was refused; from then on `good` is the goal
    turn      the one replica that may change over now

A map travels as the engine's file, packed, with a digest of the file.  Orders come from outside, so they are read with
nothing taken for granted: one that is damaged is no order.
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
    """An order that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFile:
    """One engine's file of one stored placement."""

    placement_id: str
    digest: str
    packed: str = field(repr=False)

    @classmethod
    def of(cls, text: str, *, placement_id: str) -> "MapFile":
        """Pack a file.  ValueError when it is larger than an order may carry."""
        data = text.encode()
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"the engine's file must be at most {MAX_FILE_BYTES:,} bytes, got {len(data):,}")
        packed = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
        return cls(placement_id=placement_id, digest=digest_of(data), packed=packed)

    def text(self) -> str:
        """The file.  DamagedError unless it is the one that the digest names."""
        try:
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(base64.b64decode(self.packed, validate=True), MAX_FILE_BYTES)
        except (binascii.Error, zlib.error, ValueError) as error:
            raise DamagedError(f"the packed file cannot be unpacked: {error}") from error
        if not unpacking.eof or digest_of(data) != self.digest:
            raise DamagedError("the packed file is not the one that its digest names")
        return data.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What all replicas of a deployment are told."""

    number: int
    next: MapFile | None
    good: MapFile | None
    attempt: int = 1
    refusal: str | None = None
    turn: str | None = None

    @property
    def goal(self) -> MapFile | None:
        """What the replica whose turn it is loads."""
        return self.good if self.refusal is not None else self.next

    def document(self) -> dict[str, Any]:
        """As it stands in user_config."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """What a replica's engine says that its maps must look like; None: it does not say."""

    engine: str
    version: str | None = None
    layers: int | None = None  # MoE layers only
    experts: int | None = None
    slots: int | None = None  # of one layer, on all GPUs together
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """What one replica says of itself."""

    replica_id: str
    stamp: str  # of the user_config that it heard last
    number: int  # of the last order it could read; 0: none
    shape: EngineShape
    loaded: str | None = None  # digest; None: the engine's own placement
    placement_id: str | None = None  # of what is loaded
    changing: bool = False  # from the moment it heard that it is its turn until it serves again
    refusals: Mapping[str, str] = field(default_factory=dict)  # digest -> reason, of this attempt


def stamp_of(user_config: Any) -> str:
    """A digest of a whole user_config, the same in Serve's answers and in a replica."""
    return digest_of(json.dumps(user_config or {}, sort_keys=True).encode())


def digest_of(data: bytes) -> str:
    """Of a file, or of anything else."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def digest(file: MapFile | None) -> str | None:
    """Of the file, where there is one."""
    return None if file is None else file.digest


def read_order(document: Any) -> Order:
    """An order as it stands in user_config.  DamagedError when it is none."""
    match document:
        case {
            "number": int(number),
            "next": next_map,
            "good": good,
            "attempt": int(attempt),
            "refusal": None | str() as refusal,
            "turn": None | str() as turn,
        } if number >= 1:
            return Order(
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
