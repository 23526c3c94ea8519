"""The node of each address."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fleet.documents import RuleError, Violation

MAX_NODES = 100_000
MAX_NAMED = 8  # nodes, in an error

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Peers:
    """Maps addresses to the job's nodes.  A node may have several addresses, as with one per rail."""

    node_of: Mapping[str, int]
    keys: Mapping[bytes, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())
        keys = {key: node for text, node in self.node_of.items() for key in _keys(ipaddress.ip_address(text))}
        object.__setattr__(self, "keys", keys)

    @property
    def nodes(self) -> int:
        return 1 + max(self.node_of.values(), default=-1)

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(ipaddress.ip_address(text) for text in self.node_of)

    def violation_of(self, node: int) -> str | None:
        nodes = sorted(set(self.node_of.values()))
        if node in nodes:
            return None
        named = ", ".join(map(str, nodes[:MAX_NAMED])) + (", ..." if len(nodes) > MAX_NAMED else "")
        return f"is none of the nodes among the peers, which are {named}"

    def _violations(self) -> Iterator[Violation]:
        for text, node in self.node_of.items():
            try:
                ipaddress.ip_address(text)
            except ValueError:
                yield (text,), "expected an IPv4 or IPv6 address"
            if not 0 <= node < MAX_NODES:
                yield (text,), f"expected the index of a node, 0 to {MAX_NODES - 1}, got {node}"


def _keys(address: Address) -> tuple[bytes, ...]:
    """Return the address as inet_diag_sockid holds it: an IPv4 address in the first word, or IPv6-mapped."""
    packed = address.packed
    if len(packed) == 16:
        return (packed,)
    return packed + bytes(12), bytes(10) + b"\xff\xff" + packed


def parse_peers(text: str) -> Peers:
    """Parse `10.0.0.1=0,10.0.0.2=1`, or the same with one pair a line, blanks and `#` comments."""
    pairs: dict[str, int] = {}
    violations: list[Violation] = []
    lines = (line.partition("#")[0] for line in text.splitlines())
    for part in ",".join(lines).split(","):
        if not (entry := part.strip()):
            continue
        address, sign, node = (piece.strip() for piece in entry.partition("="))
        if not sign or not node.isascii() or not node.isdigit() or len(node) > 6:
            violations.append(((entry,), "expected ADDRESS=INDEX"))
        elif address in pairs:
            violations.append(((address,), "is there twice"))
        else:
            pairs[address] = int(node)
    RuleError.raise_for(violations)
    if not pairs:
        raise RuleError([((), "names no peer, expected ADDRESS=INDEX")])
    return Peers(pairs)
