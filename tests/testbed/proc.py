"""Reads `/proc`: descendants of a process, running processes, environment variables, listening addresses."""

import ipaddress
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
ENDED_STATES: Final = "ZX"
LISTENING: Final = "0A"  # TCP_LISTEN of linux/net/tcp_states.h

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, nearest first; includes zombies."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in PROC.glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the process ended meanwhile
            children[int(_fields_after_name(path)[1])].append(int(path.name))
    found = list(children[pid])
    for child in found:
        found.extend(children[child])
    return found


def is_running(pid: int) -> bool:
    """Check that process `pid` exists and is no zombie."""
    try:
        return _fields_after_name(PROC / str(pid))[0] not in ENDED_STATES
    except (FileNotFoundError, ProcessLookupError):
        return False


def peak_memory_bytes(pid: int) -> int:
    """Return the most resident memory that process `pid` ever had."""
    (line,) = [line for line in (PROC / str(pid) / "status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def thread_count(pid: int) -> int:
    """Return how many threads process `pid` has; 0 once it has ended."""
    try:
        return sum(1 for _thread in (PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def running_with_variable(name: str, value: str) -> list[int]:
    """Return the processes whose environment has `name` set to `value`; descendants inherit the variable."""
    mark = f"{name}={value}".encode()
    found = []
    for path in PROC.glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark in (path / "environ").read_bytes().split(b"\0") and is_running(int(path.name)):
                found.append(int(path.name))
    return found


def listening_on(pids: Iterable[int]) -> set[IPAddress]:
    """Return the addresses on which `pids` accept TCP connections."""
    sockets = {target for pid in pids for target in _open_files(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for row in (PROC / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = fields = row.split()
            if state == LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.add(_address(local.partition(":")[0]))
    return found


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in (PROC / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(path.readlink()))
    return found


def _address(text: str) -> IPAddress:
    """Parse an address as the kernel prints it: integers of 32 bits, each in the byte order of the machine."""
    integers = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(integers))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _fields_after_name(path: Path) -> list[str]:
    # The name is in parentheses and may itself hold spaces and parentheses. After it: state, parent, ...
    return (path / "stat").read_text().rpartition(")")[2].split()
