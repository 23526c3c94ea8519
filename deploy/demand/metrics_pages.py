"""Reads metrics pages of engines directly, and keeps their samples of the last windows in this process.

After a start, or a change of the leader, the first window is usable when it has passed.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx
from prometheus_client.parser import text_string_to_metric_families

from planner.demand.profiles import Profile
from planner.demand.series import Series

TIMEOUT_S = 5.0
CONCURRENT = 16
MAX_SAMPLES = 500  # a window of half an hour, polled every five seconds
PAGE_LABEL = "page"  # the address of the page, which distinguishes the replicas

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class MetricsPages:
    """The samples of the pages that are polled; `max_samples` of each series."""

    http: httpx.AsyncClient
    max_samples: int = MAX_SAMPLES
    _samples: dict[str, dict[tuple[str, Labels], deque[tuple[float, float]]]] = field(default_factory=dict)

    async def poll(self, pages: Iterable[str], *, profile: Profile, at_s: float) -> Mapping[str, str]:
        """Read each page once.  Return the pages that did not answer, with the reason."""
        slots, failed = asyncio.Semaphore(CONCURRENT), dict[str, str]()
        names = frozenset(profile.series_names())

        async def one(page: str) -> None:
            async with slots:
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        response = await self.http.get(page, timeout=TIMEOUT_S)
                    if response.status_code != HTTPStatus.OK:
                        failed[page] = f"returned {response.status_code}"
                        return
                    self._keep(page, response.text, names=names, at_s=at_s)
                except TimeoutError:
                    failed[page] = f"did not respond within {TIMEOUT_S:g} s"
                except (httpx.RequestError, httpx.InvalidURL) as error:
                    failed[page] = f"does not respond: {str(error) or type(error).__name__}"
                except ValueError:
                    failed[page] = "is no metrics page"

        await asyncio.gather(*map(one, pages))
        return failed

    def series(self, pages: Iterable[str]) -> list[Series]:
        return [
            Series(name, dict(labels) | {PAGE_LABEL: page}, tuple(samples))
            for page in pages
            for (name, labels), samples in self._samples.get(page, {}).items()
        ]

    def forget_all_but(self, pages: Iterable[str]) -> None:
        kept = set(pages)
        self._samples = {page: series for page, series in self._samples.items() if page in kept}

    def _keep(self, page: str, text: str, *, names: frozenset[str], at_s: float) -> None:
        known = self._samples.setdefault(page, {})
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name if sample.name in names else sample.name.removesuffix("_total")  # the parser adds it
                if name in names:
                    key = (name, tuple(sorted(sample.labels.items())))
                    known.setdefault(key, deque(maxlen=self.max_samples)).append((at_s, float(sample.value)))
