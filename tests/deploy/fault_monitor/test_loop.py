"""The watcher of a told job, in told time: batches in, verdicts, metrics and bundles out; and its HTTP face."""

import asyncio
import io
import json
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from deploy.fault_monitor.agents import LOST_AFTER_S
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import BUNDLE_AFTER_S, MonitorClock, MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import UNPROVEN, BundleFolder, JsonLines
from deploy.fault_monitor.routes import monitor_app
from deploy.telemetry.batch_codec import WireError, encode
from faults.bundle import read_bundle
from faults.monitor import MonitorSettings
from fleetwright.telemetry.batch_format import PATH
from tests.deploy.fault_monitor.batches import batches, batches_of_ranks
from tests.faults.stories import Story

ZERO_S = 1_795_000_000.0
DIES = Story(nodes=4, gone=((5.1, 2),), end_s=7.0)


class Told:
    """A loop in a time of its own."""

    def __init__(self, bundles: Path | None = None) -> None:
        self.at_s = 0.0
        self.file = JobConfig(name="told", nodes=4)
        self.out, self.registry = io.StringIO(), CollectorRegistry()
        self.loop = MonitorLoop(
            self.file,
            lines=JsonLines(self.out, job="told", zero_s=ZERO_S),
            metrics=MonitorMetrics(self.registry, job="told"),
            bundles=BundleFolder(bundles, job=self.file.job(), settings=self.file.settings) if bundles else None,
            zero_s=ZERO_S,
            clock=MonitorClock(now_s=lambda: ZERO_S + self.at_s, steady_s=lambda: self.at_s),
        )

    def tell(self, story: Story, *, until_s: float, twice: bool = False) -> None:
        """What each second brings, and four judgements in it; what ranks say by their recorders and directly."""
        told = story.told()
        while self.at_s < until_s:
            came = [seen for seen in told if self.at_s <= seen.at_s < self.at_s + 0.5]
            self.at_s += 0.5
            for body in batches(came, zero_s=ZERO_S, sent_s=ZERO_S + self.at_s, session=f"at {self.at_s}"):
                self.loop.take(body)
            for body in batches_of_ranks(came if twice else [], zero_s=ZERO_S, sent_s=ZERO_S + self.at_s):
                self.loop.take(body)
            self.loop.turn()

    async def whole(self, story: Story, *, until_s: float) -> None:
        """To the end of the process."""
        self.tell(story, until_s=until_s)
        await self.loop.finish()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"fleetwright_faults_{name}", {"job": "told", **labels})


def test_a_prober_that_is_lost_is_no_lost_agent() -> None:
    told = Told()
    whole = {"session": "s", "number": 0, "held": None}
    for node in range(2):
        told.loop.take(encode([], [], node=node, sent_s=ZERO_S, prober=True, **whole)[0])  # type: ignore[arg-type]
    told.at_s = LOST_AFTER_S + 1.0
    for node, prober in ((0, True), (1, False)):
        told.loop.take(encode([], [], node=node, sent_s=ZERO_S + told.at_s, prober=prober, **whole)[0])  # type: ignore[arg-type]
    told.loop.turn()
    assert (told.metric("probers"), told.metric("lost_probers")) == (2.0, 1.0)
    assert (told.metric("agents"), told.metric("lost_agents")) == (1.0, 0.0)


def kept(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("*.bundle.jsonl")]


def test_a_crash_is_told_once_counted_and_its_bundle_holds(tmp_path: Path) -> None:
    told = Told(tmp_path)
    asyncio.run(told.whole(DIES, until_s=7.0))
    (line,) = map(json.loads, told.out.getvalue().splitlines())
    assert (line["class"], line["node"], line["isolate"]) == ("crash", 2, True)
    assert (told.metric("verdicts_total", **{"class": "crash", "scope": "rank"}), told.metric("agents")) == (1.0, 4.0)
    assert told.metric("isolations_recommended_total") == 1.0
    (bundle,) = kept(tmp_path)
    assert read_bundle(bundle.splitlines()).holds


@pytest.mark.parametrize(
    "story",
    [
        Story(nodes=4, goes_on=True, end_s=15.0),
        Story(nodes=4, behind=2, end_s=15.0),
        Story(nodes=4, silent=2, unread=2, end_s=15.0),
        Story(nodes=4, gone=((5.1, 2),), end_s=15.0),
    ],
    ids=["well", "behind", "frozen", "crashed"],
)
def test_what_is_told_by_the_recorder_and_directly_too_changes_no_verdict(story: Story) -> None:
    once, again = Told(), Told()
    once.tell(story, until_s=15.0)
    again.tell(story, until_s=15.0, twice=True)
    assert again.loop.diagnoses == once.loop.diagnoses
    assert bool(once.loop.diagnoses) is not story.goes_on
    assert again.metric("agents") == once.metric("agents") == 4.0


def test_a_bundle_is_written_when_it_is_due(tmp_path: Path) -> None:
    told = Told(tmp_path)

    async def run() -> None:
        told.tell(DIES, until_s=7.0)
        assert told.loop._writing == set()  # not before what follows is in it too
        told.tell(DIES, until_s=7.0 + BUNDLE_AFTER_S)
        await asyncio.gather(*told.loop._writing)

    asyncio.run(run())
    assert len(kept(tmp_path)) == 1


def test_a_judgement_that_raises_is_counted_and_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    told.tell(DIES, until_s=2.0)
    with monkeypatch.context() as broken:
        broken.setattr(told.loop._watcher, "judge", lambda _now_s: 1 / 0)
        assert told.loop.turn() == ()
    assert told.metric("judge_failures_total") == 1.0
    told.tell(DIES, until_s=7.0)
    assert [diagnosis.node for diagnosis in told.loop.diagnoses] == [2]


def test_an_isolation_that_comes_after_the_fault_was_named_is_told_again(tmp_path: Path) -> None:
    told = Told(tmp_path)
    asyncio.run(told.whole(Story(nodes=4, behind=1, end_s=20.0), until_s=20.0))
    lines = [json.loads(line) for line in told.out.getvalue().splitlines()]
    assert [(line["said"], line["node"], line["isolate"]) for line in lines] == [("new", 1, False), ("again", 1, True)]
    assert told.metric("verdicts_total", **{"class": "noncomm-hang", "scope": lines[0]["scope"]}) == 1.0
    assert told.metric("isolations_recommended_total") == 1.0
    assert [diagnosis.isolate for diagnosis in told.loop.diagnoses] == [True]
    proofs = [read_bundle(bundle.splitlines()) for bundle in kept(tmp_path)]
    assert any(diagnosis.isolate for proof in proofs for diagnosis in proof.diagnoses)


def test_a_bundle_whose_tape_is_too_short_says_that_it_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.fault_monitor.loop.MAX_TAPE", 10)
    told = Told(tmp_path)
    asyncio.run(told.whole(DIES, until_s=7.0))
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(f"-crash-rank-2{UNPROVEN}.bundle.jsonl")
    bundle = read_bundle(path.read_text().splitlines())
    assert (bundle.holds, bundle.proves, bundle.diagnoses) == (True, False, ())
    assert bundle.dropped > 0
    assert list(bundle.told) == told.loop.diagnoses
    assert (told.metric("bundles_total", outcome="unproven"), told.metric("bundles_total", outcome="proves")) == (1, 0)


def test_bundles_together_take_no_more_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.fault_monitor.outputs.MAX_BUNDLE_BYTES", 1)
    for number in range(3):
        (tmp_path / f"{number}.bundle.jsonl").write_text("old")
    told = Told(tmp_path)
    asyncio.run(told.whole(DIES, until_s=7.0))
    assert [path.name.endswith("-crash-rank-2.bundle.jsonl") for path in tmp_path.iterdir()] == [True]
    assert told.metric("bundles_total", outcome="proves") == 1


def test_what_is_no_batch_is_refused_and_counted() -> None:
    told = Told()
    with pytest.raises(WireError):
        told.loop.take(b"{}")
    assert told.metric("refused_batches_total", reason="malformed") == 1.0


def test_its_face_takes_batches_and_shows_verdicts() -> None:
    told = Told()
    told.tell(DIES, until_s=4.5)
    asyncio.run(through_its_face(told))


async def through_its_face(told: Told) -> None:
    app = monitor_app(told.loop, registry=told.registry, token="hush")
    (body, *_rest) = batches(DIES.told(), zero_s=ZERO_S, sent_s=ZERO_S + 4.5)
    shown = {"Authorization": "Bearer hush"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://watcher") as client:
        assert (await client.post(PATH, content=body)).status_code == 401
        assert (await client.post(PATH, content=body, headers=shown)).status_code == 204
        assert (await client.post(PATH, content=b"{}", headers=shown)).status_code == 422
        told.tell(DIES, until_s=7.0)
        (diagnosis,) = (await client.get("/v1/verdicts", headers=shown)).json()
        assert (diagnosis["fault"], diagnosis["node"]) == ("crash", 2)
        assert (await client.get("/healthz")).status_code == 200
        assert "fleetwright_faults_decision_seconds_count" in (await client.get("/metrics")).text
        told.at_s += 60.0
        assert (await client.get("/healthz")).status_code == 503


def test_a_job_names_what_does_not_agree() -> None:
    with pytest.raises(ValidationError, match="rank_node") as violations:
        JobConfig(nodes=2, rank_node=(0, 2), groups=((0, 5),))
    assert "expected a rank from 0 to 1, got 5" in str(violations.value)


@pytest.mark.parametrize("per_node", [1, 2])
def test_where_the_ranks_are_is_said_once(per_node: int) -> None:
    with pytest.raises(ValidationError, match="expected ranks_per_node or rank_node, not both"):
        JobConfig(nodes=2, ranks_per_node=per_node, rank_node=(0, 1))
    assert JobConfig(nodes=2, ranks_per_node=2).job().rank_node == (0, 0, 1, 1)
    assert JobConfig(nodes=2, rank_node=(1, 0)).job().rank_node == (1, 0)


def test_a_job_of_more_ranks_than_a_bundle_holds_is_refused() -> None:
    with pytest.raises(ValidationError, match="ranks_per_node"):
        JobConfig(nodes=100_000, ranks_per_node=8)
    with pytest.raises(ValidationError, match="judge_s"):
        JobConfig(nodes=2, settings=MonitorSettings(judge_s=1e-9))
