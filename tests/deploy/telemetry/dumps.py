"""INET_DIAG dumps built field by field, as an independent implementation of the kernel's layout."""

import ipaddress
import struct
from typing import NamedTuple

from faults.observations import Socket


class DumpedSocket(NamedTuple):
    """One socket of a dump."""

    address: str
    values: Socket  # of one connection
    timer: int = 1
    ports: tuple[int, int] = (40_000, 29_400)
    info_bytes: int = 232


def message(entry: DumpedSocket, *, kind: int = 20, attributes: bytes = b"") -> bytes:
    values = entry.values
    target = ipaddress.ip_address(entry.address).packed
    body = struct.pack("=BBBB", 2, 1, entry.timer, values.timer_retransmits)
    body += struct.pack(">HH", *entry.ports) + bytes(16) + target.ljust(16, b"\0") + bytes(12)
    body += struct.pack("=IIIII", 0, values.read_queue_bytes, values.write_queue_bytes, 0, 7)
    body += attributes + attribute(2, tcp_info(values)[: entry.info_bytes])
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def attribute(kind: int, content: bytes) -> bytes:
    padded = content + bytes(-len(content) % 4)
    return struct.pack("=HH", 4 + len(content), kind) + padded


def tcp_info(values: Socket) -> bytes:
    info = bytearray(232)
    struct.pack_into("=BBBBBBBB", info, 0, 1, 2, 3, 4, values.backoff, 5, 6, 7)
    fields = {
        8: values.rto_us,
        24: values.unacked,
        44: values.since_sent_ms,
        52: values.since_received_ms,
        68: values.rtt_us,
        80: values.cwnd,
        100: values.retransmits,
        144: values.unsent_bytes,
        148: values.min_rtt_us,
    }
    for at, value in fields.items():
        struct.pack_into("=I", info, at, value)
    wide = (values.acked_bytes, values.received_bytes)
    struct.pack_into("=QQ", info, 120, *wide)
    struct.pack_into("=QQQ", info, 168, values.busy_us, values.rwnd_limited_us, values.sndbuf_limited_us)
    return bytes(info)


def joined(one: Socket, other: Socket) -> Socket:
    """The sum of two connections to one peer, as docs/explanation/faults/recorder.md defines it."""
    summed = {name: a + b for name, a, b in zip(Socket._fields, one, other, strict=True)}
    return Socket(**summed)._replace(
        rtt_us=max(one.rtt_us, other.rtt_us),
        backoff=max(one.backoff, other.backoff),
        rto_us=max(one.rto_us, other.rto_us),
        min_rtt_us=min(one.min_rtt_us, other.min_rtt_us),
        since_sent_ms=min(one.since_sent_ms, other.since_sent_ms),
        since_received_ms=min(one.since_received_ms, other.since_received_ms),
    )
