"""The windows before the first one of a planning loop, read from the history that its demand sources keep.

The first forecast then rests on observed errors instead of assumed ones.  A window counts if the demand of every
workload is usable in it.  Which replicas ran then is not known, so a replica whose samples are all missing is not
noticed; no forecast is below the rate of the newest window, which is read with that check.
"""

import asyncio
from collections.abc import Mapping

from api.schemas.demand_sources import DemandSources
from deploy.common.clock import Clock
from deploy.demand.reader import DemandReader
from planner.demand.replicas import Window
from planner.demand.windows import DemandWindow

MAX_WINDOWS = 120
AT_ONCE = 4  # windows; as many in a row without usable demand end the history
MAX_S = 20.0


async def windows_before(
    window: Window, *, demand: DemandReader, sources: Mapping[str, DemandSources], clock: Clock
) -> list[dict[str, DemandWindow]]:
    """Usable windows, the oldest first; none where a source keeps no history."""
    if not all(map(demand.keeps_history, sources.values())):
        return []
    found: list[dict[str, DemandWindow]] = []
    started_s = clock.steady_s()
    for newest in range(1, MAX_WINDOWS + 1, AT_ONCE):
        earlier = (_earlier(window, windows=newest + n) for n in range(AT_ONCE))
        read = await asyncio.gather(*(_read(each, demand=demand, sources=sources) for each in earlier))
        usable = [each for each in read if all(one.is_usable for one in each.values())]
        found += usable
        if not usable or clock.steady_s() - started_s > MAX_S:
            break
    return found[::-1]


def _earlier(window: Window, *, windows: int) -> Window:
    by_s = windows * window.length_s
    return Window(window.start_s - by_s, window.end_s - by_s)


async def _read(
    window: Window, *, demand: DemandReader, sources: Mapping[str, DemandSources]
) -> dict[str, DemandWindow]:
    read = (demand.read(each, window=window, expected_replicas={}) for each in sources.values())
    return dict(zip(sources, await asyncio.gather(*read), strict=True))
