"""InfiniBand and RoCE port counters: the files below /sys/class/infiniband.

`<device>/ports/<port>/{state, rate, counters/*, hw_counters/*}`.  Counters keep the kernel's units: port_xmit_data and
port_rcv_data count words of 4 bytes (Documentation/ABI/stable/sysfs-class-infiniband).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from faults.observations import Observation, Port
from faults.readers.fields import MAX, decimal
from faults.readers.parse_errors import MalformedError, ParseErrors

SOURCE: Final = "port"
MAX_CHARACTERS: Final = 256  # of one value
MAX_FILES: Final = 65_536  # 64 devices of 8 ports have some 25,000

_PATH = re.compile(r"(?:.*/)?([A-Za-z0-9_.-]{1,64})/ports/(\d{1,4})/(state|rate|(?:hw_)?counters/[A-Za-z0-9_]{1,64})")
_STATE = re.compile(r"\d{1,3}: ([A-Z_]{1,32})")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec\b.*")

Texts = dict[str, str]


def parse_ports(files: Mapping[str, str], *, at_s: float, node: int, tally: ParseErrors) -> Iterator[Observation]:
    """Parse the ports of a node; `files` are the texts by path.  Other paths are ignored."""
    ports: dict[tuple[str, int], Texts] = defaultdict(dict)
    for path, text in list(files.items())[:MAX_FILES]:
        match = _PATH.fullmatch(path)
        if match is not None:
            ports[match[1], int(match[2])][match[3]] = text
    for (device, port), texts in sorted(ports.items()):
        with tally.skipping(SOURCE):
            yield Observation(at_s, node, _port(device, port, texts, tally=tally))


def _port(device: str, port: int, texts: Texts, *, tally: ParseErrors) -> Port:
    state = _STATE.fullmatch(texts.get("state", "").strip()[:MAX_CHARACTERS])
    rate = _RATE.fullmatch(texts.get("rate", "").strip()[:MAX_CHARACTERS])
    if state is None:
        raise MalformedError("state is missing or malformed")
    if rate is None:
        raise MalformedError("rate is missing or malformed")
    counters = []
    for name, text in sorted(texts.items()):
        folder, _, counter = name.partition("/")
        if counter and not text.startswith("N/A"):  # the port keeps none: "N/A (no PMA)"
            with tally.skipping(SOURCE):
                count = decimal(text.strip(), digits=20, defect="counter is no whole number")
                counters.append((counter if folder == "counters" else f"hw_{counter}", min(count, MAX)))  # saturate
    return Port(device, port, state[1], float(rate[1]), tuple(counters))
