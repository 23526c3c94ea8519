"""The counts that a target publishes for an external autoscaler: in mode `recommend` only, and held while missing."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from api.client import NotFoundError
from api.schemas.applications import KubernetesScale
from api.schemas.targets import Mode, Phase
from deploy.actuators.base import Step, TargetSnapshot
from deploy.actuators.registry import Actuators
from deploy.common.errors import ActuationError
from deploy.controller.reconcile import ControllerSettings
from planner.request import PlanRequest
from tests.deploy.controller.harness import Harness
from tests.planner.requests import from_offers, offer

pytestmark = pytest.mark.anyio
H100, L4 = "H100-SXM", "L4"
PREFILL, DECODE = "H100-SXM/prefill", "H100-SXM/decode"


@dataclass
class Cluster:
    """Kubernetes objects that another program scales; a write of the controller is an error of the test."""

    counts: dict[str, int]
    reachable: bool = True
    written: list[Any] = field(default_factory=list)

    async def observe(self) -> TargetSnapshot:
        if not self.reachable:
            raise ActuationError("the Kubernetes API server does not respond")
        return TargetSnapshot(requested=dict(self.counts), running=dict(self.counts))

    async def apply(self, change: Any) -> None:
        assert isinstance(change, Step)
        self.counts[change.part] = change.replicas_after
        self.written.append(change)


def application(*parts: str) -> KubernetesScale:
    objects = {part: {"name": f"chat-{part.lower().replace('/', '-')}"} for part in parts}
    return KubernetesScale.model_validate({"namespace": "ml", "objects": objects})


def actuators(cluster: Cluster) -> Actuators:
    return Actuators(kubernetes_scale=lambda _application: cluster)


async def wanted(harness: Harness) -> dict[str, int]:
    found = await harness.api.get_wanted_replicas("chat")
    return {each.part: each.replicas for each in found.parts}


async def age_s(harness: Harness) -> float:
    return (await harness.api.get_wanted_replicas("chat")).age_s


async def test_a_recommending_target_publishes_its_plan_and_writes_nothing(harness: Harness) -> None:
    cluster = Cluster({H100: 1, L4: 4})
    plan_id = await harness.plan({H100: 3})
    await harness.register_real("chat", application(H100, L4), plan_id=plan_id, mode=Mode.RECOMMEND)
    controller = harness.controller(actuators=actuators(cluster))

    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.RECOMMENDED
    assert await wanted(harness) == {H100: 3, L4: 0}

    cluster.counts = {H100: 3, L4: 0}  # the autoscaler follows
    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.OBSERVED
    published = await harness.api.get_wanted_replicas("chat")
    assert (published.plan_id, published.age_s) == (plan_id, 0.0)
    assert [(each.namespace, each.kind, each.name, each.replicas) for each in published.parts] == [
        ("ml", "Deployment", "chat-h100-sxm", 3),
        ("ml", "Deployment", "chat-l4", 0),
    ]
    assert cluster.written == []


async def test_the_floor_of_the_target_is_part_of_the_published_counts(harness: Harness) -> None:
    cluster = Cluster({H100: 1, L4: 2})
    await harness.register_real(
        "chat", application(H100, L4), plan_id=await harness.plan({H100: 1}), mode=Mode.RECOMMEND, min_replicas=3
    )
    controller = harness.controller(actuators=actuators(cluster))
    for _ in range(3):
        await harness.round(controller)
        found = await wanted(harness)
        assert found == {H100: 1, L4: 2}, "existing replicas are kept first"
        assert (await harness.status("chat")).planned == {H100: 1, L4: 0}
        cluster.counts = found


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.APPLY])
async def test_the_other_modes_publish_nothing(harness: Harness, mode: Mode) -> None:
    cluster = Cluster({H100: 1})
    await harness.register_real("chat", application(H100), plan_id=await harness.plan({H100: 2}), mode=Mode.RECOMMEND)
    controller = harness.controller(actuators=actuators(cluster))
    await harness.round(controller)
    assert await wanted(harness) == {H100: 2}

    await harness.change("chat", mode=mode)
    with pytest.raises(NotFoundError, match=f"it is in mode {mode}; allowed: recommend"):
        await wanted(harness)  # at once, before the next reconcile
    await harness.round(controller)
    await harness.change("chat", mode=Mode.RECOMMEND)
    with pytest.raises(NotFoundError, match="no reconcile has reported one yet"):
        await wanted(harness)  # the counts of an earlier time with this mode are gone


async def test_a_controller_that_only_observes_publishes_nothing(harness: Harness) -> None:
    await harness.register_real("chat", application(H100), plan_id=await harness.plan({H100: 2}), mode=Mode.RECOMMEND)
    settings = ControllerSettings(observe_only=True)
    await harness.round(harness.controller(actuators=actuators(Cluster({H100: 1})), settings=settings))
    with pytest.raises(NotFoundError, match="no reconcile has reported one yet"):
        await wanted(harness)


async def test_the_last_counts_stay_while_the_cluster_cannot_be_observed(harness: Harness) -> None:
    cluster = Cluster({H100: 1})
    await harness.register_real("chat", application(H100), plan_id=await harness.plan({H100: 2}), mode=Mode.RECOMMEND)
    controller = harness.controller(actuators=actuators(cluster))
    await harness.round(controller)
    cluster.reachable = False
    for _ in range(4):
        await harness.round(controller)
    status = await harness.status("chat")
    assert (status.phase, status.planned, status.applied) == (Phase.FAILED, {}, {})
    assert (await wanted(harness), await age_s(harness)) == ({H100: 2}, 20.0)

    cluster.reachable = True
    for _ in range(12):  # within the longest time between two attempts
        await harness.round(controller)
    assert await age_s(harness) < 60.0
    assert (await harness.status("chat")).phase is Phase.RECOMMENDED


async def test_the_last_counts_stay_without_a_controller(harness: Harness) -> None:
    await harness.register_real("chat", application(H100), plan_id=await harness.plan({H100: 2}), mode=Mode.RECOMMEND)
    await harness.round(harness.controller(actuators=actuators(Cluster({H100: 1}))))
    harness.clock.advance(86_400.0)
    assert (await wanted(harness), await age_s(harness)) == ({H100: 2}, 86_400.0)


async def test_a_plan_that_is_too_old_to_apply_is_not_published(harness: Harness) -> None:
    first, old = await harness.plan({H100: 2}), await harness.plan({H100: 9})
    await harness.register_real("chat", application(H100), plan_id=first, mode=Mode.RECOMMEND)
    settings = ControllerSettings(plan_max_age_s=3600.0)
    controller = harness.controller(actuators=actuators(Cluster({H100: 1})), settings=settings)
    await harness.round(controller)
    harness.clock.advance(timedelta(hours=2).total_seconds())
    await harness.change("chat", plan_id=old)
    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.FAILED
    assert await wanted(harness) == {H100: 2}


async def test_a_freeze_holds_the_published_counts(harness: Harness) -> None:
    plan_id, next_id = await harness.plan({H100: 2}), await harness.plan({H100: 5})
    await harness.register_real("chat", application(H100), plan_id=plan_id, mode=Mode.RECOMMEND)
    controller = harness.controller(actuators=actuators(Cluster({H100: 1})))
    await harness.round(controller)
    await harness.freeze(frozen=True, reason="maintenance")
    await harness.change("chat", plan_id=next_id)
    for _ in range(2):
        await harness.round(controller)
    assert (await wanted(harness), await age_s(harness)) == ({H100: 2}, 10.0)

    await harness.freeze(frozen=False)
    await harness.round(controller)
    assert (await wanted(harness), await age_s(harness)) == ({H100: 5}, 0.0)


async def test_a_plan_with_separate_prefill_and_decode_has_two_counts_whose_ratio_follows_the_prompts(
    harness: Harness,
) -> None:
    await harness.register_real("chat", application(PREFILL, DECODE, H100), mode=Mode.RECOMMEND)
    controller = harness.controller(actuators=actuators(Cluster({PREFILL: 1, DECODE: 1, H100: 0})))
    ratios = []
    for input_tokens in (1_000, 12_000):
        plan = await harness.api.create_plan(_split(input_tokens))
        await harness.change("chat", plan_id=plan.id)
        await harness.round(controller)
        counts = await wanted(harness)
        roles = {"prefill": counts[PREFILL], "decode": counts[DECODE]}
        assert roles == {
            role: sum(each.count for each in plan.plan.allocation if each.option.endswith(f"-{role}")) for role in roles
        }
        ratios.append(counts[PREFILL] / counts[DECODE])
    assert ratios[1] > 1.5 * ratios[0] > 0


def _split(input_tokens: int) -> PlanRequest:
    request = from_offers(
        rate_rps=100,
        split=True,
        buckets={"input_tokens": [input_tokens], "output_tokens": [500], "share": [[1.0]]},
        slo={"tpot_ms": {"mean": 15}, "ttft_ms": {"mean": 1000}},
    )
    return PlanRequest.model_validate(request | {"offers": [offer("here/h100", H100, 3.0)]})
