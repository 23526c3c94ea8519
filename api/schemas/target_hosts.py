"""Which hosts a controller may call for targets: names, suffixes and networks.  Pure.

Operators write the URLs of targets, and the controller calls them from inside the network.  Without this list, a
caller that may write a target could reach every service that the controller reaches (server-side request forgery).
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fleet.errors import DocumentError, Problem

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TARGET_HOSTS_VARIABLE: Final = "FLEETWRIGHT_TARGET_HOSTS"
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.0/8", "::1")
CLUSTER_HOSTS: Final = (*LOOPBACK_HOSTS, ".svc", ".cluster.local")  # Services of Kubernetes
_NAME: Final = re.compile(r"\.?[a-z0-9_]([-a-z0-9_.]{0,251}[a-z0-9])?")
# Metadata services of clouds that are not link-local.
_METADATA: Final = tuple(
    map(ipaddress.ip_network, ("fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    names: frozenset[str]
    suffixes: tuple[str, ...]
    networks: tuple[Network, ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowedHosts":
        """Read names (`ray-head`), suffixes (`.svc`) and networks or addresses (`10.0.0.0/8`)."""
        names, suffixes, networks = set(), [], []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
                continue
            except ValueError:
                name = entry.lower()
            if not _NAME.fullmatch(name):
                allowed = "a host name, a suffix such as .svc, an address, or a network such as 10.0.0.0/8"
                raise DocumentError(name="target hosts", problems=[Problem("", f"allowed: {allowed}, got {entry!r}")])
            if name.startswith("."):
                suffixes.append(name)
            else:
                names.add(name)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def refusal(self, host: str, addresses: Sequence[str]) -> str | None:
        """Return why a host that resolves to these addresses must not be called; None where it may."""
        found = [plain_address(each) for each in addresses]
        for address in found:
            if (kind := never_called(address)) is not None:
                return f"{host} resolves to {address}, {kind}; no target may be there"
        if not found:
            return f"{host} has no address"
        outside = [address for address in found if not any(address in network for network in self.networks)]
        named = host.lower().rstrip(".")
        is_named = named in self.names or named.endswith(self.suffixes)
        if outside and (not is_named or any(address.is_loopback for address in outside)):
            return f"{host} ({outside[0]}) is not among the allowed hosts of targets: {self}"
        return None

    def __str__(self) -> str:
        return ", ".join([*sorted(self.names), *self.suffixes, *map(str, self.networks)]) or "none"


def split_hosts(text: str) -> tuple[str, ...]:
    """Split the value of the environment variable: entries with spaces or commas between them."""
    return tuple(filter(None, re.split(r"[\s,]+", text)))


def plain_address(text: str) -> Address:
    """Return the address; of an IPv6 address that stands for an IPv4 address, the latter."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def never_called(address: Address) -> str | None:
    """Return what makes an address unusable for any target; None for a usable one."""
    if address.is_link_local or any(address in network for network in _METADATA):
        return "a link-local or metadata address"
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_multicast or (address.is_reserved and not address.is_loopback):
        return "a multicast or reserved address"
    return None
