"""The monitor loop of a generated job: from batches to diagnoses, metrics and bundles."""

import asyncio
import io
import json
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from deploy.fault_monitor.ingest import LOST_AFTER_S
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import BUNDLE_AFTER_S, MonitorClock, MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import UNPROVEN, BundleFolder, JsonLines
from deploy.fault_monitor.process import monitor_app
from deploy.telemetry.batch_codec import WireError, encode
from faults.bundle import proves, read_bundle
from faults.monitor import MonitorSettings
from fleetwright.telemetry.batch_format import PATH
from tests.deploy.fault_monitor.batches import batches, batches_of_ranks
from tests.faults.stories import Story

ZERO_S = 1_795_000_000.0
DIES = Story(nodes=4, gone=((5.1, 2),), end_s=7.0)


class TimedLoop:
    """A monitor loop whose time the test sets."""

    def __init__(self, bundles: Path | None = None) -> None:
        self.at_s = 0.0
        self.file = JobConfig(name="llm", nodes=4)
        self.out, self.registry = io.StringIO(), CollectorRegistry()
        self.loop = MonitorLoop(
            self.file,
            lines=JsonLines(self.out, job="llm", zero_s=ZERO_S),
            metrics=MonitorMetrics(self.registry, job="llm"),
            bundles=BundleFolder(bundles, job=self.file.job(), settings=self.file.settings) if bundles else None,
            zero_s=ZERO_S,
            clock=MonitorClock(now_s=lambda: ZERO_S + self.at_s, steady_s=lambda: self.at_s),
        )

    def feed(self, story: Story, *, until_s: float, twice: bool = False) -> None:
        """The batches of each half second, followed by an evaluation; `twice`: ranks also report directly."""
        observations = story.observations()
        while self.at_s < until_s:
            batch = [observation for observation in observations if self.at_s <= observation.at_s < self.at_s + 0.5]
            self.at_s += 0.5
            for body in batches(batch, zero_s=ZERO_S, sent_s=ZERO_S + self.at_s, session=f"at {self.at_s}"):
                self.loop.receive(body)
            for body in batches_of_ranks(batch if twice else [], zero_s=ZERO_S, sent_s=ZERO_S + self.at_s):
                self.loop.receive(body)
            self.loop.evaluate()

    async def run_to_end(self, story: Story, *, until_s: float) -> None:
        """Feed the story and end the process."""
        self.feed(story, until_s=until_s)
        await self.loop.finish()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"fleetwright_faults_{name}", {"training_job": "llm", **labels})


def test_a_lost_prober_does_not_count_as_a_lost_agent() -> None:
    fed = TimedLoop()
    common = {"session": "s", "number": 0, "held": None}
    for node in range(2):
        fed.loop.receive(encode([], [], node=node, sent_s=ZERO_S, prober=True, **common)[0])  # type: ignore[arg-type]
    fed.at_s = LOST_AFTER_S + 1.0
    for node, prober in ((0, True), (1, False)):
        fed.loop.receive(encode([], [], node=node, sent_s=ZERO_S + fed.at_s, prober=prober, **common)[0])  # type: ignore[arg-type]
    fed.loop.evaluate()
    assert (fed.metric("probers"), fed.metric("lost_probers")) == (2.0, 1.0)
    assert (fed.metric("agents"), fed.metric("lost_agents")) == (1.0, 0.0)


def kept(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("*.bundle.jsonl")]


def test_a_crash_is_published_once_and_counted_and_its_bundle_replays(tmp_path: Path) -> None:
    fed = TimedLoop(tmp_path)
    asyncio.run(fed.run_to_end(DIES, until_s=7.0))
    (line,) = map(json.loads, fed.out.getvalue().splitlines())
    assert (line["class"], line["node"], line["isolate"]) == ("crash", 2, True)
    assert (fed.metric("diagnoses_total", **{"class": "crash", "scope": "rank"}), fed.metric("agents")) == (1.0, 4.0)
    assert fed.metric("quarantines_justified_total") == 1.0
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
    ids=["healthy", "behind", "frozen", "crashed"],
)
def test_direct_reports_in_addition_to_the_recorder_change_no_diagnosis(story: Story) -> None:
    once, again = TimedLoop(), TimedLoop()
    once.feed(story, until_s=15.0)
    again.feed(story, until_s=15.0, twice=True)
    assert again.loop.diagnoses == once.loop.diagnoses
    assert bool(once.loop.diagnoses) is not story.goes_on
    assert again.metric("agents") == once.metric("agents") == 4.0


def test_a_bundle_is_written_when_it_is_due(tmp_path: Path) -> None:
    fed = TimedLoop(tmp_path)

    async def run() -> None:
        fed.feed(DIES, until_s=7.0)
        assert fed.loop._writing == set()  # the bundle waits for the following observations
        fed.feed(DIES, until_s=7.0 + BUNDLE_AFTER_S)
        await asyncio.gather(*fed.loop._writing)

    asyncio.run(run())
    assert len(kept(tmp_path)) == 1


def test_an_evaluation_that_raises_is_counted_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = TimedLoop()
    fed.feed(DIES, until_s=2.0)
    with monkeypatch.context() as broken:
        broken.setattr(fed.loop._monitor, "evaluate", lambda _now_s: 1 / 0)
        assert fed.loop.evaluate() == ()
    assert fed.metric("evaluation_failures_total") == 1.0
    fed.feed(DIES, until_s=7.0)
    assert [diagnosis.node for diagnosis in fed.loop.diagnoses] == [2]


def test_an_isolation_after_the_first_diagnosis_is_published_as_an_update(tmp_path: Path) -> None:
    fed = TimedLoop(tmp_path)
    asyncio.run(fed.run_to_end(Story(nodes=4, behind=1, end_s=20.0), until_s=20.0))
    lines = [json.loads(line) for line in fed.out.getvalue().splitlines()]
    assert [(line["change"], line["node"], line["isolate"]) for line in lines] == [
        ("new", 1, False),
        ("updated", 1, True),
    ]
    assert fed.metric("diagnoses_total", **{"class": "noncomm-hang", "scope": lines[0]["scope"]}) == 1.0
    assert fed.metric("quarantines_justified_total") == 1.0
    assert [diagnosis.isolate for diagnosis in fed.loop.diagnoses] == [True]
    proofs = [read_bundle(bundle.splitlines()) for bundle in kept(tmp_path)]
    assert any(diagnosis.isolate for proof in proofs for diagnosis in proof.diagnoses)


def test_a_bundle_of_a_too_short_call_log_is_unproven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.fault_monitor.loop.MAX_LOG", 10)
    fed = TimedLoop(tmp_path)
    asyncio.run(fed.run_to_end(DIES, until_s=7.0))
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(f"-crash-rank-2{UNPROVEN}.bundle.jsonl")
    bundle = read_bundle(path.read_text().splitlines())
    assert (bundle.holds, proves(bundle.live, bundle.diagnoses), bundle.diagnoses) == (True, False, ())
    assert bundle.dropped > 0
    assert list(bundle.live) == fed.loop.diagnoses
    assert (fed.metric("bundles_total", outcome="unproven"), fed.metric("bundles_total", outcome="proves")) == (1, 0)


def test_all_bundles_together_stay_within_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.fault_monitor.outputs.MAX_BUNDLE_BYTES", 1)
    for number in range(3):
        (tmp_path / f"{number}.bundle.jsonl").write_text("old")
    fed = TimedLoop(tmp_path)
    asyncio.run(fed.run_to_end(DIES, until_s=7.0))
    assert [path.name.endswith("-crash-rank-2.bundle.jsonl") for path in tmp_path.iterdir()] == [True]
    assert fed.metric("bundles_total", outcome="proves") == 1


def test_an_invalid_batch_is_refused_and_counted() -> None:
    fed = TimedLoop()
    with pytest.raises(WireError):
        fed.loop.receive(b"{}")
    assert fed.metric("refused_batches_total", reason="malformed") == 1.0


def test_routes_accept_batches_and_return_diagnoses() -> None:
    fed = TimedLoop()
    fed.feed(DIES, until_s=4.5)
    asyncio.run(check_routes(fed))


async def check_routes(fed: TimedLoop) -> None:
    app = monitor_app(fed.loop, registry=fed.registry, token="secret")
    (body, *_rest) = batches(DIES.observations(), zero_s=ZERO_S, sent_s=ZERO_S + 4.5)
    headers = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://monitor") as client:
        assert (await client.post(PATH, content=body)).status_code == 401
        assert (await client.post(PATH, content=body, headers=headers)).status_code == 204
        assert (await client.post(PATH, content=b"{}", headers=headers)).status_code == 422
        fed.feed(DIES, until_s=7.0)
        (diagnosis,) = (await client.get("/v1/diagnoses", headers=headers)).json()
        assert (diagnosis["fault"], diagnosis["node"]) == ("crash", 2)
        assert (await client.get("/healthz")).status_code == 200
        assert "fleetwright_faults_evaluation_duration_seconds_count" in (await client.get("/metrics")).text
        fed.at_s += 60.0
        assert (await client.get("/healthz")).status_code == 503


def test_an_inconsistent_job_file_is_refused_by_field() -> None:
    with pytest.raises(ValidationError, match="rank_node") as violations:
        JobConfig(nodes=2, rank_node=(0, 2), groups=((0, 5),))
    assert "expected a rank from 0 to 1, got 5" in str(violations.value)


@pytest.mark.parametrize("per_node", [1, 2])
def test_the_placement_of_ranks_is_configured_in_one_way(per_node: int) -> None:
    with pytest.raises(ValidationError, match="expected ranks_per_node or rank_node, not both"):
        JobConfig(nodes=2, ranks_per_node=per_node, rank_node=(0, 1))
    assert JobConfig(nodes=2, ranks_per_node=2).job().rank_node == (0, 0, 1, 1)
    assert JobConfig(nodes=2, rank_node=(1, 0)).job().rank_node == (1, 0)


def test_a_job_of_more_ranks_than_a_bundle_holds_is_refused() -> None:
    with pytest.raises(ValidationError, match="ranks_per_node"):
        JobConfig(nodes=100_000, ranks_per_node=8)
    with pytest.raises(ValidationError, match="judge_s"):
        JobConfig(nodes=2, settings=MonitorSettings(judge_s=1e-9))
