"""Encodes the messages of NVSentinel's platform connector.

The connector's service is `datamodels.PlatformConnector`.  The field numbers are those of its messages `HealthEvents`,
`HealthEvent` and `Entity`; proto3 omits fields with their zero value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final

METHOD: Final = "/datamodels.PlatformConnector/HealthEventOccurredV1"
_VERSION: Final = 1
_VARINT, _BYTES = 0, 2  # wire types


class RecommendedAction(IntEnum):
    NONE = 0
    CONTACT_SUPPORT = 5


class ProcessingStrategy(IntEnum):
    EXECUTE_REMEDIATION = 1
    STORE_ONLY = 2  # stored and exported; the cluster is not changed


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthEventMessage:
    agent: str
    component_class: str
    check_name: str
    node_name: str
    message: str
    is_fatal: bool
    is_healthy: bool
    recommended_action: RecommendedAction
    processing_strategy: ProcessingStrategy
    generated_at: datetime
    error_codes: Sequence[str] = ()
    entities: Sequence[tuple[str, str]] = ()  # type and value
    metadata: Mapping[str, str] = field(default_factory=dict)


def encode_health_events(events: Iterable[HealthEventMessage]) -> bytes:
    return _number(1, _VERSION) + b"".join(_bytes(2, _event(each)) for each in events)


def _event(event: HealthEventMessage) -> bytes:
    at_us = round(event.generated_at.timestamp() * 1e6)
    timestamp = _number(1, at_us // 1_000_000) + _number(2, at_us % 1_000_000 * 1000)
    parts = [
        _number(1, _VERSION),
        _text(2, event.agent),
        _text(3, event.component_class),
        _text(4, event.check_name),
        _number(5, int(event.is_fatal)),
        _number(6, int(event.is_healthy)),
        _text(7, event.message),
        _number(8, event.recommended_action),
        *(_bytes(9, each.encode()) for each in event.error_codes),
        *(_bytes(10, _text(1, kind) + _text(2, value)) for kind, value in event.entities),
        *(_bytes(11, _text(1, key) + _text(2, value)) for key, value in sorted(event.metadata.items())),
        _bytes(12, timestamp),
        _text(13, event.node_name),
        _number(16, event.processing_strategy),
    ]
    return b"".join(parts)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value) if value else b""


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode()) if value else b""


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Encode an unsigned number, seven bits per byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
