"""Start, stop, upgrade and list, with doubles of the cluster and its controllers."""

from typing import Any

import pytest

from deploy.ray_actor.lifecycle import (
    ControllerExistsError,
    ControllerNotFoundError,
    Lifecycle,
    StartFailedError,
    Timeouts,
    merged,
    settings_of,
)
from deploy.ray_actor.messages import ControllerActorSettings, ControllerName, GpuSource, LoopState, NodeActorSettings
from tests.deploy.ray_actor.doubles import ClusterDouble, node

NAME = "controller"
G1, G2 = ControllerName(NAME, 1), ControllerName(NAME, 2)
SETTINGS = ControllerActorSettings(url="http://api:8400")


class Time:
    """A clock that advances with each sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble(alive=(node("b"), node("a", is_head=True)))


@pytest.fixture
def lifecycle(cluster: ClusterDouble) -> Lifecycle:
    time = Time()
    return Lifecycle(cluster, timeouts=Timeouts(up_s=3.0, steady_s=lambda: time.now_s, sleep=time.sleep))


def test_start_creates_the_first_generation_on_the_head_node(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    outcome = lifecycle.start(NAME, SETTINGS, runtime_env={"pip": ["x"]})
    assert (outcome.name, outcome.changed, outcome.report.role) == (G1, True, "leader")
    assert cluster.placed[str(G1)] == "a0"
    assert cluster.received[str(G1)] == {"pip": ["x"]}
    assert ControllerActorSettings.model_validate(cluster.host(str(G1)).settings) == SETTINGS


def test_start_without_a_usable_head_node_leaves_the_placement_to_ray(
    lifecycle: Lifecycle, cluster: ClusterDouble
) -> None:
    cluster.alive = (node("a", is_head=True, draining=True), node("b"))
    lifecycle.start(NAME, SETTINGS)
    assert cluster.placed[str(G1)] is None


def test_a_repeated_start_changes_nothing(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    lifecycle.start(NAME, SETTINGS)
    again = lifecycle.start(NAME, SETTINGS)
    assert (again.name, again.changed) == (G1, False)
    assert list(cluster.actors) == [str(G1)]


@pytest.mark.parametrize(
    ("made", "settings", "reason"),
    [
        (
            {},
            ControllerActorSettings(url="http://other:1"),
            r"already runs, with other settings \(url\).*controller upgrade",
        ),
        ({"version": "0.0.9"}, SETTINGS, r"runs version 0\.0\.9, this is .*controller upgrade"),
        ({"state": LoopState.STOPPED}, SETTINGS, r"is stopped: remove it with `controller stop`"),
    ],
)
def test_start_is_refused_if_a_different_controller_runs(
    lifecycle: Lifecycle, cluster: ClusterDouble, made: dict[str, Any], settings: ControllerActorSettings, reason: str
) -> None:
    cluster.running(str(G1), SETTINGS, **made)
    with pytest.raises(ControllerExistsError, match=reason):
        lifecycle.start(NAME, settings)
    assert cluster.killed == []


def test_two_concurrent_starts_create_one_controller(cluster: ClusterDouble) -> None:
    class Raced(ClusterDouble):
        def names(self) -> frozenset[str]:
            return frozenset()  # both listed the actors before either created one

    raced = Raced(alive=cluster.alive)
    raced.running(str(G1), SETTINGS)
    assert not Lifecycle(raced).start(NAME, SETTINGS).changed


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"state": LoopState.FAILED, "error": "token file /t: is empty"}, "does not start: token file /t: is empty"),
        ({"silent": True}, "is not up after 3 s: actor controller.g1 does not respond"),
        ({"role": "unknown"}, "is not up after 3 s: it is running, its role is unknown"),
    ],
)
def test_a_controller_that_does_not_start_is_removed(
    lifecycle: Lifecycle, cluster: ClusterDouble, made: dict[str, Any], reason: str
) -> None:
    cluster.made = [made]
    with pytest.raises(StartFailedError, match=reason):
        lifecycle.start(NAME, SETTINGS)
    assert cluster.actors == {}


def test_an_upgrade_hands_over_and_keeps_unchanged_settings(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    old = cluster.running(str(G1), SETTINGS, version="0.0.9")
    cluster.actors["controller.g1.watch.0.a0"] = None
    outcome = lifecycle.upgrade(NAME, {"period_s": 2.0})
    assert outcome.name == G2
    assert ControllerActorSettings.model_validate(outcome.report.settings) == SETTINGS.model_copy(
        update={"period_s": 2.0}
    )
    assert old.commands == ["stop"]
    assert list(cluster.actors) == [str(G2)]


def test_an_upgrade_ends_an_unresponsive_controller(cluster: ClusterDouble) -> None:
    class HangsLater(ClusterDouble):
        def call(self, name: str, method: str, *, timeout_s: float) -> Any:
            if (name, method) == (str(G1), "stop"):
                self.host(name).silent = True
            return super().call(name, method, timeout_s=timeout_s)

    hanging = HangsLater(alive=cluster.alive)
    hanging.running(str(G1), SETTINGS)
    assert Lifecycle(hanging).upgrade(NAME, {}).name == G2
    assert list(hanging.actors) == [str(G2)]


def test_a_failed_start_in_an_upgrade_keeps_the_old_controller(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    old = cluster.running(str(G1), SETTINGS)
    cluster.made = [{"state": LoopState.FAILED, "error": "no answer"}]
    with pytest.raises(StartFailedError, match=r"controller\.g2 does not start: no answer"):
        lifecycle.upgrade(NAME, {})
    assert (old.commands, list(cluster.actors)) == ([], [str(G1)])


class NeverLeads(ClusterDouble):
    """The new controller starts while the old one leads, and loses the API when it should lead."""

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        if (name, method) == (str(G1), "stop"):
            self.host(str(G2)).role = "unknown"
        return super().call(name, method, timeout_s=timeout_s)


def test_an_upgrade_is_undone_if_the_new_controller_does_not_lead(cluster: ClusterDouble) -> None:
    broken, time = NeverLeads(alive=cluster.alive, made=[{"role": "follower"}]), Time()
    old = broken.running(str(G1), SETTINGS)
    lifecycle = Lifecycle(broken, timeouts=Timeouts(up_s=3.0, steady_s=lambda: time.now_s, sleep=time.sleep))
    with pytest.raises(StartFailedError, match=r"g2 does not lead after 3 s \(unknown\); controller\.g1 continues"):
        lifecycle.upgrade(NAME, {})
    assert (old.commands, old.role, list(broken.actors)) == (["stop", "resume"], "leader", [str(G1)])


def test_the_upgrade_of_a_follower_does_not_require_the_lease(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.running(str(G1), SETTINGS, role="follower")
    cluster.made = [{"role": "follower"}]
    assert lifecycle.upgrade(NAME, {}).report.role == "follower"


def test_an_upgrade_without_a_controller_is_refused(lifecycle: Lifecycle) -> None:
    with pytest.raises(ControllerNotFoundError, match="no controller controller; start it first"):
        lifecycle.upgrade(NAME, {})


def test_an_upgrade_removes_the_remains_of_an_interrupted_one(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.running(str(G1), SETTINGS, state=LoopState.STOPPED)
    cluster.running(str(G2), SETTINGS)
    assert lifecycle.upgrade(NAME, {}).name == ControllerName(NAME, 3)
    assert list(cluster.actors) == ["controller.g3"]


def test_stop_ends_all_generations_of_a_name_and_their_node_actors(
    lifecycle: Lifecycle, cluster: ClusterDouble
) -> None:
    doubles = [cluster.running(str(host), SETTINGS) for host in (G1, G2)]
    doubles[0].silent = True
    others = {"canary.g1": None, "canary.g1.watch.0.a0": None, "SERVE_CONTROLLER_ACTOR": None}
    cluster.actors |= others | {"controller.g2.watch.0.a0": None}
    assert lifecycle.stop(NAME) == [G1, G2]
    assert doubles[1].commands == ["stop"]
    assert cluster.actors == others
    assert lifecycle.stop(NAME) == []


def test_stop_reports_actors_that_do_not_end(lifecycle: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.running(str(G1), SETTINGS)
    cluster.immortal = True
    with pytest.raises(Exception, match="ended, and still there after 3 s: controller"):
        lifecycle.stop(NAME)


def test_listing_shows_the_report_of_each_controller_or_that_it_is_missing(
    lifecycle: Lifecycle, cluster: ClusterDouble
) -> None:
    cluster.running("a-b.g7", SETTINGS, error="an earlier error")
    cluster.running(str(G1), SETTINGS).silent = True
    first, second = lifecycle.listing()
    assert (str(first.name), first.node_name, first.message) == ("a-b.g7", "a", "an earlier error")
    assert (second.name, second.report) == (G1, None)
    assert "does not respond" in (second.message or "")


def test_unknown_settings_of_another_version_are_omitted() -> None:
    before = ControllerActorSettings(watch=NodeActorSettings(hz=2.0)).model_dump(mode="json") | {"colour": "red"}
    before["watch"]["taste"] = "sweet"
    assert settings_of(before, {"watch": {"gpus": "simulated"}}).watch == NodeActorSettings(
        hz=2.0, gpus=GpuSource.SIMULATED
    )


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"watch": {"hz": 2.0}}, {"watch": None}, {"watch": None}),
        ({"watch": None}, {"watch": {}}, {"watch": {}}),
        ({"watch": {"hz": 2.0, "gpus": "none"}}, {"watch": {"hz": 1.0}}, {"watch": {"hz": 1.0, "gpus": "none"}}),
        ({"url": "a"}, {"period_s": 1.0}, {"url": "a", "period_s": 1.0}),
    ],
)
def test_settings_changes_are_merged_field_by_field(
    before: dict[str, Any], changes: dict[str, Any], after: dict[str, Any]
) -> None:
    assert merged(before, changes) == after
