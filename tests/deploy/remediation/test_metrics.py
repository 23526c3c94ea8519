"""What a healer tells of itself is what it did; and it lives while its loop turns, whatever the rounds come to."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from prometheus_client import CollectorRegistry

from api.client import ApiError
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.common.liveness import ALLOWANCE, Pulse
from deploy.remediation.cluster_interface import Sight
from deploy.remediation.controller import LEASE, Healer, HealerSettings
from deploy.remediation.metrics import HealerMetrics
from faults.quarantine import IsolationRules, Mode, Wish
from tests.deploy.controller_harness import House
from tests.deploy.remediation.world import FakeWorld, head, node

pytestmark = pytest.mark.anyio
PATIENCE_S = 50.0
TURNS = 3


@dataclass
class Watched:
    """A healer whose metrics are read; two waits of its loop are told apart: between rounds, and between renewals."""

    house: House
    holder: str = "h"
    world: FakeWorld = field(default_factory=lambda: FakeWorld(nodes=[head(), *map(node, "abcdefghij")], runs=[]))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    alive: list[bool] = field(default_factory=list)  # at each wait
    renewed: asyncio.Event = field(default_factory=asyncio.Event)
    stands: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        now, steady_s = self.house.clock.now, self.house.clock.monotonic_s
        self.pulse = Pulse(steady_s=steady_s)
        self.settings = HealerSettings(act=True, patience_s=PATIENCE_S)
        self.leadership = Leadership(
            api=self.house.api,
            settings=LeaseSettings(name=LEASE, holder=self.holder),
            clock=Clock(now=now, steady_s=steady_s, sleep=self._renewed),
        )
        self.healer = Healer(
            api=self.house.api,
            world=self.world,
            leadership=self.leadership,
            metrics=HealerMetrics(self.registry),
            settings=self.settings,
            pulse=self.pulse,
            clock=Clock(now=now, steady_s=steady_s, sleep=self._turned),
        )

    async def round(self) -> bool:
        """A second later."""
        self.house.clock.advance(1.0)
        await self.leadership.renew()
        return await self.healer.run_round()

    def told(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"fleetwright_healer_{name}")

    def counted(self, name: str) -> Mapping[tuple[str, ...], float]:
        """What a counter has, by its labels; what is 0 left out."""
        return dict(self._counted(f"fleetwright_healer_{name}_total"))

    def _counted(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        for sample in (sample for family in self.registry.collect() for sample in family.samples):
            if sample.name == name and sample.value:
                yield tuple(sample.labels.values()), sample.value

    async def _renewed(self, _seconds: float) -> None:
        self.renewed.set()
        await asyncio.Event().wait()

    async def _turned(self, _seconds: float) -> None:
        self.alive.append(self.pulse.is_alive())
        self.house.clock.advance(1.0)
        await self.renewed.wait()
        if len(self.alive) > TURNS:
            self.stands.set()
            await asyncio.Event().wait()


@pytest.fixture
async def watched(house: House) -> Watched:
    shipped = await house.api.get_isolation_rules()
    await house.api.replace_isolation_rules(IsolationRules(mode=Mode.APPLY), if_match=shipped.etag)
    return Watched(house)


async def test_acts_are_counted_by_kind_and_by_what_came_of_them(watched: Watched) -> None:
    await watched.round()
    await watched.house.api.wish_for_node("d", Wish.KEEP_OUT)
    watched.world.refuses = {"drain"}
    for _ in range(2):
        await watched.round()
    assert watched.counted("acts") == {("drain", "failed"): 2}
    watched.world.refuses = set()
    for _ in range(3):
        await watched.round()
    await watched.house.api.wish_for_node("d", Wish.RELEASE)
    await watched.round()
    assert watched.counted("acts") == {
        ("drain", "failed"): 2,
        ("drain", "ok"): 1,
        ("hook-replace", "ok"): 1,
        ("hook-release", "ok"): 1,
    }


async def test_a_hook_that_is_not_there_and_a_freeze_are_no_acts(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(_hook: str, *, node: str, case_id: str) -> str:  # noqa: ARG001 - of the protocol
        return ""

    monkeypatch.setattr(watched.world, "call_out", none)
    await watched.round()
    await watched.house.api.wish_for_node("d", Wish.KEEP_OUT)
    await watched.house.freeze(frozen=True)
    await watched.round()
    assert watched.counted("acts") == {}
    await watched.house.freeze(frozen=False)
    for _ in range(3):
        await watched.round()
    assert watched.counted("acts") == {("drain", "ok"): 1}


async def test_rounds_are_the_leaders_and_the_last_good_one_is_remembered(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (watched.told("leads"), watched.told("last_round_timestamp_seconds")) == (0.0, 0.0)
    assert await watched.round()
    good_at_s = watched.house.clock.now().timestamp()
    assert (watched.told("leads"), watched.told("last_round_timestamp_seconds")) == (1.0, good_at_s)

    async def away() -> Sight:
        raise ActuationError("Ray does not answer")

    monkeypatch.setattr(watched.world, "look", away)
    assert not await watched.round()
    assert watched.counted("rounds") == {("ok",): 1, ("failed",): 1}
    assert watched.told("round_seconds_count") == 2
    assert watched.told("last_round_timestamp_seconds") == good_at_s
    other = Watched(watched.house, holder="other")
    assert await other.round()
    assert (other.told("leads"), other.counted("rounds")) == (0.0, {})


async def test_how_many_runs_are_under_watch_is_asked_at_each_scrape() -> None:
    registry, runs = CollectorRegistry(), ["llm"]
    HealerMetrics(registry).watching(lambda: len(runs))
    assert registry.get_sample_value("fleetwright_healer_runs_watched") == 1.0
    runs.clear()
    assert registry.get_sample_value("fleetwright_healer_runs_watched") == 0.0


async def test_it_leads_no_more_as_soon_as_its_lease_has_ended(watched: Watched) -> None:
    await watched.round()
    watched.house.clock.advance(60.0)  # nothing was renewed
    assert watched.told("leads") == 0.0


@pytest.mark.parametrize(
    ("state", "rounds"),
    [
        ("leads", {("ok",): TURNS}),
        ("follows", {}),
        ("defect", {("failed",): TURNS}),
        ("no service", {("failed",): TURNS}),
    ],
)
async def test_it_lives_while_its_loop_turns_and_not_once_it_is_stuck(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, state: str, rounds: Mapping[tuple[str, ...], float]
) -> None:
    await _bring_about(state, watched, monkeypatch)
    assert not watched.pulse.is_alive()
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(watched.healer.run())
        await watched.stands.wait()
    assert watched.alive == [True] * (TURNS + 1)
    assert watched.counted("rounds") == rounds
    longest_s = watched.settings.period_s + watched.settings.round_timeout_s
    watched.house.clock.advance(longest_s)
    assert watched.pulse.is_alive()  # a turn may take so long
    watched.house.clock.advance(ALLOWANCE * longest_s)
    assert not watched.pulse.is_alive()
    running.cancel()
    await asyncio.wait([running])


async def _bring_about(state: str, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> Sight:
        raise RuntimeError("a defect")

    async def no_answer(_name: str) -> None:
        raise ApiError("no answer")

    if state == "follows":
        assert await Watched(watched.house, holder="other").round()
    elif state == "defect":
        monkeypatch.setattr(watched.world, "look", broken)
    elif state == "no service":
        monkeypatch.setattr(watched.house.api, "get_lease", no_answer)
