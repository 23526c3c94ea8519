"""Start, stop, upgrade, list, against doubles of the cluster and of its controllers."""

from typing import Any

import pytest

from deploy.ray_actor.lifecycle import (
    ControllerExistsError,
    ControllerNotFoundError,
    Lifecycle,
    Patience,
    StartFailedError,
    merged,
    settings_of,
)
from deploy.ray_actor.messages import ControllerActorSettings, ControllerName, GpuSource, LoopState, NodeActorSettings
from tests.deploy.ray_actor.doubles import ClusterDouble, node

NAME = "controller"
G1, G2 = ControllerName(NAME, 1), ControllerName(NAME, 2)
SETTINGS = ControllerActorSettings(url="http://api:8400")


class Time:
    """Goes by when somebody sleeps, or waits for what does not answer."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble(there=(node("b"), node("a", is_head=True)))


@pytest.fixture
def conductor(cluster: ClusterDouble) -> Lifecycle:
    time = Time()
    return Lifecycle(cluster, patience=Patience(up_s=3.0, steady_s=lambda: time.now_s, sleep=time.sleep))


def test_a_start_makes_the_first_generation_on_the_head(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    outcome = conductor.start(NAME, SETTINGS, runtime_env={"pip": ["x"]})
    assert (outcome.name, outcome.changed, outcome.report.standing) == (G1, True, "leads")
    assert cluster.placed[str(G1)] == "a0"
    assert cluster.told[str(G1)] == {"pip": ["x"]}
    assert ControllerActorSettings.model_validate(cluster.host(str(G1)).told) == SETTINGS


def test_on_a_cluster_whose_head_drains_it_goes_where_ray_puts_it(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.there = (node("a", is_head=True, draining=True), node("b"))
    conductor.start(NAME, SETTINGS)
    assert cluster.placed[str(G1)] is None


def test_the_same_start_again_changes_nothing(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    conductor.start(NAME, SETTINGS)
    again = conductor.start(NAME, SETTINGS)
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
def test_one_that_is_there_and_is_another_is_refused(
    conductor: Lifecycle, cluster: ClusterDouble, made: dict[str, Any], settings: ControllerActorSettings, reason: str
) -> None:
    cluster.running(str(G1), SETTINGS, **made)
    with pytest.raises(ControllerExistsError, match=reason):
        conductor.start(NAME, settings)
    assert cluster.killed == []


def test_two_starts_at_the_same_time_make_one(cluster: ClusterDouble) -> None:
    class Raced(ClusterDouble):
        def names(self) -> frozenset[str]:
            return frozenset()  # both looked before either made it

    raced = Raced(there=cluster.there)
    raced.running(str(G1), SETTINGS)
    assert not Lifecycle(raced).start(NAME, SETTINGS).changed


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"state": LoopState.FAILED, "error": "token file /t: is empty"}, "does not start: token file /t: is empty"),
        ({"silent": True}, "is not up after 3 s: actor controller.g1 does not answer"),
        ({"standing": "unknown"}, "is not up after 3 s: it is running, its role is unknown"),
    ],
)
def test_one_that_does_not_come_up_is_taken_away(
    conductor: Lifecycle, cluster: ClusterDouble, made: dict[str, Any], reason: str
) -> None:
    cluster.made = [made]
    with pytest.raises(StartFailedError, match=reason):
        conductor.start(NAME, SETTINGS)
    assert cluster.actors == {}


def test_an_upgrade_hands_over_and_keeps_what_was_not_changed(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    old = cluster.running(str(G1), SETTINGS, version="0.0.9")
    cluster.actors["controller.g1.watch.0.a0"] = None
    outcome = conductor.upgrade(NAME, {"period_s": 2.0})
    assert outcome.name == G2
    assert ControllerActorSettings.model_validate(outcome.report.settings) == SETTINGS.model_copy(
        update={"period_s": 2.0}
    )
    assert old.heard == ["stop"]
    assert list(cluster.actors) == [str(G2)]


def test_an_upgrade_of_one_that_hangs_ends_it(cluster: ClusterDouble) -> None:
    class HangsLater(ClusterDouble):
        def call(self, name: str, method: str, *, timeout_s: float) -> Any:
            if (name, method) == (str(G1), "stop"):
                self.host(name).silent = True
            return super().call(name, method, timeout_s=timeout_s)

    hanging = HangsLater(there=cluster.there)
    hanging.running(str(G1), SETTINGS)
    assert Lifecycle(hanging).upgrade(NAME, {}).name == G2
    assert list(hanging.actors) == [str(G2)]


def test_a_new_one_that_does_not_come_up_leaves_the_old_one_alone(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    old = cluster.running(str(G1), SETTINGS)
    cluster.made = [{"state": LoopState.FAILED, "error": "no answer"}]
    with pytest.raises(StartFailedError, match=r"controller\.g2 does not start: no answer"):
        conductor.upgrade(NAME, {})
    assert (old.heard, list(cluster.actors)) == ([], [str(G1)])


class NeverLeads(ClusterDouble):
    """The new one is up while the old one leads, and loses the API when it should lead."""

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        if (name, method) == (str(G1), "stop"):
            self.host(str(G2)).standing = "unknown"
        return super().call(name, method, timeout_s=timeout_s)


def test_a_new_one_that_does_not_lead_gives_way_to_the_old_one(cluster: ClusterDouble) -> None:
    broken, time = NeverLeads(there=cluster.there, made=[{"standing": "follows"}]), Time()
    old = broken.running(str(G1), SETTINGS)
    conductor = Lifecycle(broken, patience=Patience(up_s=3.0, steady_s=lambda: time.now_s, sleep=time.sleep))
    with pytest.raises(StartFailedError, match=r"g2 does not lead after 3 s \(unknown\); controller\.g1 continues"):
        conductor.upgrade(NAME, {})
    assert (old.heard, old.standing, list(broken.actors)) == (["stop", "resume"], "leads", [str(G1)])


def test_where_another_leads_an_upgrade_need_not(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.running(str(G1), SETTINGS, standing="follows")
    cluster.made = [{"standing": "follows"}]
    assert conductor.upgrade(NAME, {}).report.standing == "follows"


def test_an_upgrade_needs_something_to_upgrade(conductor: Lifecycle) -> None:
    with pytest.raises(ControllerNotFoundError, match="no controller controller; start it first"):
        conductor.upgrade(NAME, {})


def test_what_an_upgrade_that_was_broken_off_left_goes_with_the_next(
    conductor: Lifecycle, cluster: ClusterDouble
) -> None:
    cluster.running(str(G1), SETTINGS, state=LoopState.STOPPED)
    cluster.running(str(G2), SETTINGS)
    assert conductor.upgrade(NAME, {}).name == ControllerName(NAME, 3)
    assert list(cluster.actors) == ["controller.g3"]


def test_a_stop_ends_all_of_a_name_well_and_its_watchers(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    doubles = [cluster.running(str(host), SETTINGS) for host in (G1, G2)]
    doubles[0].silent = True
    others = {"canary.g1": None, "canary.g1.watch.0.a0": None, "SERVE_CONTROLLER_ACTOR": None}
    cluster.actors |= others | {"controller.g2.watch.0.a0": None}
    assert conductor.stop(NAME) == [G1, G2]
    assert doubles[1].heard == ["stop"]
    assert cluster.actors == others
    assert conductor.stop(NAME) == []


def test_a_stop_says_what_does_not_end(conductor: Lifecycle, cluster: ClusterDouble) -> None:
    cluster.running(str(G1), SETTINGS)
    cluster.immortal = True
    with pytest.raises(Exception, match="ended, and still there after 3 s: controller"):
        conductor.stop(NAME)


def test_a_list_says_what_each_says_of_itself_or_that_it_says_nothing(
    conductor: Lifecycle, cluster: ClusterDouble
) -> None:
    cluster.running("a-b.g7", SETTINGS, error="it was so")
    cluster.running(str(G1), SETTINGS).silent = True
    first, second = conductor.listing()
    assert (str(first.name), first.node_name, first.message) == ("a-b.g7", "a", "it was so")
    assert (second.name, second.report) == (G1, None)
    assert "does not answer" in (second.message or "")


def test_what_another_version_was_told_more_is_left_out() -> None:
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
def test_changes_go_field_by_field(before: dict[str, Any], changes: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, changes) == after
