"""The interface to Ray while Ray's control service does not respond: callers continue, and no calls accumulate."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from deploy.common.errors import UnreachableError
from deploy.common.thread_calls import BlockingCalls
from deploy.remediation.cluster_interface import RayNode
from deploy.remediation.ray_cluster import RayCluster, RayNodes
from deploy.training.run_status import RunsObserved, RunStatusReader
from tests.deploy.remediation.cluster import node, run_on
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


class Ray:
    """The control service, which responds only while the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.threads: list[threading.Thread] = []
        self.drained: list[str] = []
        self.nodes = ("a", "b")

    def waited(self) -> None:
        self.threads.append(threading.current_thread())
        self.gate.wait(PATIENCE_S)


class Nodes(RayNodes):
    """The handle of that cluster."""

    def __init__(self, ray: Ray) -> None:
        super().__init__()
        self._ray = ray

    def alive(self) -> tuple[RayNode, ...]:
        self._ray.waited()
        return tuple(map(node, self._ray.nodes))

    def drain(self, node_id: str, *, reason: str, deadline_s: float) -> None:  # noqa: ARG002 - as it is called
        self._ray.waited()
        self._ray.drained.append(node_id)


class Runs(RunStatusReader):
    """The interface to that cluster."""

    def __init__(self, ray: Ray) -> None:
        super().__init__()
        self._ray = ray

    def all_runs(self) -> RunsObserved:
        self._ray.waited()
        return RunsObserved(runs=(run_on("a", "b"),), silent=frozenset({"other"}))

    def end_workers(self, run: str, *, attempt: int, node_ids: frozenset[str]) -> int:
        self._ray.waited()
        assert (run, attempt) == ("llm", 1)
        return len(node_ids)


@pytest.fixture
def ray() -> Iterator[Ray]:
    ray = Ray()
    yield ray
    ray.gate.set()
    for thread in ray.threads:
        thread.join(PATIENCE_S)


def cluster_of(ray: Ray, *, limit_s: float = PATIENCE_S) -> RayCluster:
    return RayCluster(nodes=Nodes(ray), runs=Runs(ray), calls=BlockingCalls(limit_s=limit_s))


async def test_nodes_and_runs_are_observed_and_acted_on(ray: Ray) -> None:
    ray.gate.set()
    cluster = cluster_of(ray)
    snapshot = await cluster.observe()
    assert [each.name for each in snapshot.nodes] == ["a", "b"]
    assert [run.run for run in snapshot.runs] == ["llm"]
    assert snapshot.silent == {"other"}
    assert cluster.name_of("id-a") == "a"
    await asyncio.gather(*(cluster.drain(each, reason="case", deadline_s=1.0) for each in ("id-a", "id-b")))
    assert ray.drained == ["id-a", "id-b"]
    assert await cluster.end_workers("llm", attempt=1, ray_ids=frozenset({"id-a"})) == 1


async def test_nodes_that_have_left_keep_their_names_for_a_limited_time(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.remediation.ray_cluster.MAX_NAMES", 2)
    ray.gate.set()
    cluster = cluster_of(ray)
    for ray.nodes in (("always", "a"), ("always", "b"), ("always", "c"), ("always", "d")):
        await cluster.observe()
    known = {name: cluster.name_of(f"id-{name}") == name for name in ("always", "a", "b", "c", "d")}
    assert known == {"always": True, "a": False, "b": True, "c": True, "d": True}


async def test_calls_to_an_unresponsive_ray_time_out_and_leave_one_thread_per_kind(ray: Ray) -> None:
    cluster = cluster_of(ray, limit_s=0.0)
    for _round in range(10):
        with pytest.raises(UnreachableError, match="Ray's nodes"):
            await cluster.observe()
        for each in ("id-a", "id-b"):
            with pytest.raises(UnreachableError, match="Ray's drain"):
                await cluster.drain(each, reason="case", deadline_s=1.0)
        with pytest.raises(UnreachableError, match="training run 'llm'"):
            await cluster.end_workers("llm", attempt=1, ray_ids=frozenset({"id-a"}))
        with pytest.raises(UnreachableError, match="Ray's nodes"):
            await cluster.probe("id-a", good=["id-b"])
    left = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("call: "))
    assert left == ["call: Ray's drain", "call: Ray's nodes", "call: training run 'llm'"]


async def test_an_abandoned_observation_leaves_one_thread_and_the_next_one_works(ray: Ray) -> None:
    cluster = cluster_of(ray)
    for _round in range(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0):
                await cluster.observe()
    assert sum(thread.name.startswith("call: ") for thread in threading.enumerate()) == 1
    ray.gate.set()
    assert [each.name for each in (await cluster.observe()).nodes] == ["a", "b"]
