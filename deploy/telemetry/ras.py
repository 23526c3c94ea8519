"""A client of NCCL RAS: the text protocol on port 28028 of any rank's host (NCCL 2.28.7 and later for JSON)."""

import socket
from typing import Final

from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from faults.readers.nccl_ras import Communicators, parse_ras

ADDRESS: Final = ("localhost", 28028)
MAX_BYTES: Final = 32 * 1024 * 1024
REPLY_S: Final = 12.0  # RAS waits 5 s for its own peers, twice
_REQUEST: Final = b"SET FORMAT json\nVERBOSE STATUS\n"


class RasSource:
    """Observes the state of all ranks that RAS reaches.  One node of a job queries it."""

    name = "ras"

    def __init__(
        self, *, job_map: JobMap, tally: ParseErrors, address: tuple[str, int] = ADDRESS, period_s: float = 10.0
    ) -> None:
        self.period_s = period_s
        self._places, self._tally, self._address = job_map, tally, address
        self._members = Communicators(job_map)

    def poll(self, now_s: float) -> list[Observation]:
        reply = fetch_status(self._address)
        return list(parse_ras(reply, at_s=now_s, job_map=self._places, members=self._members, tally=self._tally))

    def close(self) -> None:
        """Do nothing, because nothing stays open."""


def fetch_status(address: tuple[str, int]) -> list[bytes]:
    with socket.create_connection(address, timeout=REPLY_S) as connection:
        connection.sendall(_REQUEST)
        chunks: list[bytes] = []
        left = MAX_BYTES
        while left > 0 and (chunk := connection.recv(min(1 << 16, left))):
            chunks.append(chunk)
            left -= len(chunk)
    return chunks
