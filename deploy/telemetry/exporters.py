"""Metrics of an exporter on this node: dcgm-exporter for GPUs, xpu_timer for ranks.

Scraped by HTTP on loopback.  Only the first observation of an unchanged value is reported: a node has thousands of
values, nearly all 0 for ever.
"""

import http.client
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from faults.observations import DeviceCounter, Observation
from faults.readers import ParseErrors
from faults.readers.dcgm import parse_dcgm
from faults.readers.job_map import JobMap
from faults.readers.xpu_timer import parse_xpu_timer

MAX_BYTES: Final = 8 * 1024 * 1024
CHUNK_BYTES: Final = 1 << 16
REPLY_S: Final = 3.0

Parse = Callable[[Iterable[bytes], float], Iterator[Observation]]


class ExporterSource:
    def __init__(self, name: str, url: str, *, parse: Parse, period_s: float = 5.0) -> None:
        self.name = name
        self.period_s = period_s
        self._url, self._parse = url, parse
        self._last: dict[tuple[object, ...], Observation] = {}

    def poll(self, now_s: float) -> list[Observation]:
        """Return what changed since the last scrape.  Raise OSError.

        A truncated reply marks nothing as reported.
        """
        reply = list(scrape(self._url))
        return [observation for observation in self._parse(reply, now_s) if self._changed(observation)]

    def close(self) -> None:
        """Do nothing, because nothing stays open."""

    def _changed(self, observation: Observation) -> bool:
        values = observation.values
        key: tuple[object, ...] = (observation.node, observation.rank, *values[:-1])
        if isinstance(values, DeviceCounter) and values.name in {"xid", "nvswitch"}:
            key = (observation.node, values.gpu, values.name)  # a change of the last error is the event
        before = self._last.get(key)
        self._last[key] = observation
        return before is None or before.values != values


def dcgm_source(url: str, *, node: int, job_map: JobMap, tally: ParseErrors) -> ExporterSource:
    """Return a source for dcgm-exporter, by default on port 9400."""

    def parse(chunks: Iterable[bytes], now_s: float) -> Iterator[Observation]:
        return parse_dcgm(chunks, at_s=now_s, node=node, job_map=job_map, tally=tally)

    return ExporterSource("dcgm", url, parse=parse)


def xpu_timer_source(url: str, *, job_map: JobMap, tally: ParseErrors) -> ExporterSource:
    """Return a source for xpu_timer, by default on port 18889."""

    def parse(chunks: Iterable[bytes], now_s: float) -> Iterator[Observation]:
        return parse_xpu_timer(chunks, at_s=now_s, job_map=job_map, tally=tally)

    return ExporterSource("xpu_timer", url, parse=parse)


def scrape(url: str) -> Iterator[bytes]:
    """Yield the reply's body in pieces.  Raise OSError unless the reply is a complete 200."""
    parts = urlsplit(url)
    connection_type = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connection_type(parts.hostname or "", parts.port, timeout=REPLY_S)
    try:
        connection.request("GET", parts.path or "/metrics", headers={"Accept": "text/plain"})
        reply = connection.getresponse()
        if reply.status != http.client.OK:
            raise OSError(f"{url}: returned {reply.status}")
        left = MAX_BYTES
        while left > 0 and (chunk := reply.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
        if left > 0 and reply.length:
            raise OSError(f"{url}: the reply is truncated")
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {type(error).__name__} {error}") from error
    finally:
        connection.close()
