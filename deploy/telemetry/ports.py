"""Counters of InfiniBand and RoCE ports, from /sys/class/infiniband."""

from pathlib import Path
from typing import Final

from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.ib_ports import MAX_CHARACTERS, MAX_FILES, parse_ports

SYSFS: Final = Path("/sys/class/infiniband")
_OF_A_PORT: Final = ("ports/*/state", "ports/*/rate", "ports/*/counters/*", "ports/*/hw_counters/*")


class PortSource:
    name = "ports"

    def __init__(self, *, node: int, tally: ParseErrors, root: Path = SYSFS, period_s: float = 5.0) -> None:
        self.period_s = period_s
        self._node, self._tally, self._root = node, tally, root

    def poll(self, now_s: float) -> list[Observation]:
        texts: dict[str, str] = {}
        for device in sorted(self._root.iterdir()):
            for pattern in _OF_A_PORT:
                for path in device.glob(pattern):
                    if len(texts) < MAX_FILES and (text := _text(path)) is not None:
                        texts[str(path.relative_to(self._root))] = text
        return list(parse_ports(texts, at_s=now_s, node=self._node, tally=self._tally))

    def close(self) -> None:
        """Do nothing, because nothing stays open."""


def _text(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CHARACTERS)
    except OSError:
        return None
