"""The history of a new planning loop: read backwards from a Prometheus, up to where its samples begin."""

import pytest

from api.schemas.demand_sources import DemandSources
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts
from deploy.common.clock import Clock
from deploy.demand.reader import DemandFolders, demand_reader
from deploy.planning_loop.history import AT_ONCE, MAX_S, windows_before
from planner.demand.replicas import Window
from planner.demand.series import Series
from planner.demand.windows import DemandWindow
from tests.planner.demand.scraped import Served, scraped
from tests.testbed.stored_series import StoredSeries, stored_series

pytestmark = pytest.mark.anyio

WINDOW_S = 60.0
WINDOWS = 10  # with samples
BEGIN_S = 6_000_000.0
NOW = Window(BEGIN_S + WINDOWS * WINDOW_S, BEGIN_S + (WINDOWS + 1) * WINDOW_S)


def traffic(*, restarted_s: float | None = None) -> list[Series]:
    """One request per second in the first window, two in the second, and so on."""
    requests = [
        Served(arrived_s=at_s, ended_s=at_s + 0.5)
        for number in range(WINDOWS + 1)
        for n in range(60 * (number + 1))
        for at_s in [BEGIN_S + WINDOW_S * number + n / (number + 1)]
    ]
    return scraped(
        requests, labels={"pod": "a"}, since_s=BEGIN_S, until_s=NOW.end_s, every_s=15.0, restarted_s=restarted_s
    )


async def history(server: StoredSeries, *, clock: Clock = Clock()) -> list[dict[str, DemandWindow]]:
    source = {"kind": "prometheus", "url": server.url, "profile": "vllm", "parts": {"*": {}}, "max_age_s": 30.0}
    demand = DemandSources.model_validate({"sources": [source]})
    async with demand_reader(allowed=AllowedHosts.parse(LOOPBACK_HOSTS)) as reader:
        return await windows_before(NOW, demand=reader, sources={"chat": demand}, clock=clock)


async def test_the_windows_are_read_up_to_where_the_samples_begin() -> None:
    with stored_series(traffic()) as server:
        found = await history(server)
    rates = [each["chat"].arrivals_rps for each in found]
    assert rates == pytest.approx([number + 1 for number in range(WINDOWS)], rel=0.03)
    ends_s = [each["chat"].window.end_s for each in found]
    assert ends_s == [BEGIN_S + WINDOW_S * (number + 1) for number in range(WINDOWS)]
    assert len(server.ends_s) <= WINDOWS + 2 * AT_ONCE


async def test_a_window_that_is_not_usable_is_left_out() -> None:
    with stored_series(traffic(restarted_s=BEGIN_S + 5.5 * WINDOW_S)) as server:
        found = await history(server)
    numbers = {round((each["chat"].window.start_s - BEGIN_S) / WINDOW_S) for each in found}
    assert numbers == set(range(WINDOWS)) - {5}


async def test_a_slow_server_is_given_up_with_what_was_read() -> None:
    reads = iter(range(100))
    with stored_series(traffic()) as server:
        found = await history(server, clock=Clock(steady_s=lambda: next(reads) * (MAX_S + 1)))
    assert len(found) == AT_ONCE


async def test_a_log_of_requests_is_not_read_again_and_again() -> None:
    demand = DemandSources.model_validate({"sources": [{"kind": "request_log", "file": "requests.jsonl"}]})
    async with demand_reader(allowed=AllowedHosts.parse(LOOPBACK_HOSTS), folders=DemandFolders()) as reader:
        assert await windows_before(NOW, demand=reader, sources={"chat": demand}, clock=Clock()) == []
