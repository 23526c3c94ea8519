"""The mapping of planned replicas to parts of a target: exactly one part for each, or the plan is refused."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api.schemas.applications import RayClusterGroups, RayServeApplication
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from deploy.controller.plan_reader import allocations_by_part, part_names, part_of, planned_clocks, planned_replicas
from planner.result import Allocation
from tests.deploy.controller.test_plan_reader import record
from tests.planner.requests import from_offers, solved

H100 = "H100-SXM"
PLACEMENT = "00000000-0000-7000-8000-000000000000"


def target(*parts: str) -> TargetSpec:
    deployments = {part: f"on-{index}" for index, part in enumerate(sorted(parts))}
    application = {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": deployments}
    return TargetSpec.model_validate({"workload": "chat", "application": application})


def allocated(
    way: str, gpus: int, count: int = 1, *, gpu: str = H100, clock: float | None = 1.0, offer: str | None = "aws/h100x8"
) -> dict[str, Any]:
    """An allocation of a plan over offers or, without an offer, of a plan over explicit options."""
    name = way if clock in (None, 1.0) else f"{way}@{clock:g}"
    return {
        "workload": "chat",
        "option": name if offer is None else f"{offer}/{name}",
        "gpu": gpu,
        "count": count,
        "gpus_per_replica": gpus,
        "clock": clock,
        "offer": offer,
        "busy": 0.5,
        "power_w": 700.0,
    }


def entry(*args: Any, **more: Any) -> Allocation:
    return Allocation.model_validate(allocated(*args, **more))


def test_part_names_go_from_the_most_to_the_least_specific() -> None:
    assert part_names(entry("tp2-fp8", 2, clock=0.7)) == [
        "H100-SXM/tp2-fp8@0.7",
        "H100-SXM/tp2-fp8",
        "H100-SXM/x2@0.7",
        "H100-SXM/x2",
        "H100-SXM@0.7",
        "H100-SXM",
    ]


def test_prefill_and_decode_have_their_own_part_names() -> None:
    prefill, decode = entry("tp2-prefill", 2, clock=0.7), entry("tp2-decode", 2)
    assert part_names(prefill) == [
        "H100-SXM/tp2-prefill@0.7",
        "H100-SXM/tp2-prefill",
        "H100-SXM/prefill@0.7",
        "H100-SXM/prefill",
        "H100-SXM/x2@0.7",
        "H100-SXM/x2",
        "H100-SXM@0.7",
        "H100-SXM",
    ]
    parts = {"H100-SXM/prefill", "H100-SXM/decode", "H100-SXM"}
    assert (part_of(prefill, parts), part_of(decode, parts)) == ("H100-SXM/prefill", "H100-SXM/decode")
    assert part_of(entry("tp2", 2), parts) == "H100-SXM"
    explicit = entry("mine-prefill", 2, clock=None, offer=None)
    assert part_of(explicit, parts) == "H100-SXM", "an explicit option may have any name"


def test_a_part_can_name_the_full_clock_that_option_names_omit() -> None:
    assert part_of(entry("tp2", 2), {"H100-SXM@0.7", "H100-SXM@1"}) == "H100-SXM@1"
    assert part_of(entry("tp2", 2), {"H100-SXM@0.7"}) is None


def test_an_explicit_option_keeps_its_name_and_has_no_clock() -> None:
    explicit = entry("the large one", 4, clock=None, offer=None)
    assert part_names(explicit) == ["H100-SXM/the large one", "H100-SXM/x4", "H100-SXM"]


def test_part_names_do_not_depend_on_the_offer() -> None:
    spot, owned = entry("tp2", 2, offer="gcp/a3/spot"), entry("tp2", 2, offer="here/h100x8")
    assert part_names(spot) == part_names(owned)


def test_a_gpu_type_name_may_contain_the_separators_of_part_names() -> None:
    odd = entry("tp2", 2, gpu="H100/80GB@SXM")
    assert part_of(odd, {"H100/80GB@SXM"}) == "H100/80GB@SXM"
    assert part_of(odd, {"H100", "H100/80GB@SXM/x2"}) == "H100/80GB@SXM/x2"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("", "/x2", "/x2@0.7", "/tp2", "/tp2@0.7"), "/tp2@0.7"),
        (("", "/x2", "/x2@0.7", "/tp2", "/tp2@1"), "/tp2"),
        (("", "/x2", "/x2@0.7", "/tp4", "@0.7"), "/x2@0.7"),
        (("", "/x2", "@0.7"), "/x2"),
        (("", "/x4", "@0.7"), "@0.7"),
        (("", "/x4", "@1", "/dp2-ep2"), ""),
        (("/x4", "@1", "/dp2-ep2", "/x"), None),
    ],
)
def test_the_most_specific_matching_part_is_chosen(parts: tuple[str, ...], expected: str | None) -> None:
    found = part_of(entry("tp2", 2, clock=0.7), {f"{H100}{part}" for part in parts})
    assert found == (None if expected is None else f"{H100}{expected}")


WAYS = st.sampled_from([("tp1", 1), ("tp1-fp8", 1), ("tp2", 2), ("dp2-ep2", 2), ("tp2-kv8", 2), ("tp8", 8)])
OFFERS = st.sampled_from(["aws/h100x8", "gcp/spot", "here/own"])
GPUS = st.sampled_from([H100, "L4"])
CLOCKS = st.sampled_from([1.0, 0.7, 0.55])
ENTRIES = st.builds(
    lambda way, count, gpu, clock, offer: allocated(way[0], way[1], count, gpu=gpu, clock=clock, offer=offer),
    WAYS,
    st.integers(1, 50),
    GPUS,
    CLOCKS,
    OFFERS,
)
NARROWED = st.builds(
    lambda gpu, way, clock: f"{gpu}{way}{clock}",
    GPUS,
    st.sampled_from(["", "/x1", "/x2", "/x8", "/tp1", "/tp1-fp8", "/tp2", "/dp2-ep2", "/tp2-kv8", "/tp8"]),
    st.sampled_from(["", "@1", "@0.7", "@0.55"]),
)


def matches(part: str, allocation: Allocation) -> bool:
    """An independent model of part names: split the name and compare each piece with the allocation."""
    found = re.fullmatch(r"([^/@]+)(?:/(x\d+|[^@]+))?(?:@([\d.]+))?", part)
    assert found is not None
    gpu, way, clock = found.groups()
    run = (allocation.option.partition("@")[0]).rsplit("/", 1)[1]
    return (
        gpu == allocation.gpu
        and (way is None or way in (run, f"x{allocation.gpus_per_replica}"))
        and (clock is None or float(clock) == allocation.clock)
    )


def specificity(part: str) -> tuple[int, bool]:
    """The rank of a part's name by the details that it gives."""
    _, _, way = part.partition("@")[0].partition("/")
    return (0 if not way else 1 if re.fullmatch(r"x\d+", way) else 2), "@" in part


@given(entries=st.lists(ENTRIES, max_size=12), parts=st.sets(NARROWED, min_size=1, max_size=8))
def test_every_replica_is_mapped_to_its_most_specific_part(entries: list[dict[str, Any]], parts: set[str]) -> None:
    plan, spec = record(*entries), target(*parts)
    fitting = [[part for part in parts if matches(part, each)] for each in plan.plan.allocation]
    if not all(fitting):
        with pytest.raises(PlanUnusableError, match="for which the target names no deployment"):
            allocations_by_part(plan, spec)
        return
    found = allocations_by_part(plan, spec)
    assert [each for each, _ in found] == list(plan.plan.allocation)
    for (each, part), choice in zip(found, fitting, strict=True):
        assert part == max(choice, key=specificity), each.option
        assert sum(specificity(other) == specificity(part) for other in choice) == 1, (
            "no two parts are equally specific"
        )
    sizes = Counter(part for part, _ in {(part, each.gpus_per_replica) for each, part in found})
    if any(count > 1 for count in sizes.values()):
        with pytest.raises(PlanUnusableError, match="are all alike"):
            planned_replicas(plan, spec)
        return
    planned = planned_replicas(plan, spec)
    assert planned.keys() == parts
    assert sum(planned.values()) == sum(each.count for each in plan.plan.allocation)
    for part in parts:
        assert planned[part] == sum(each.count for each, taken_by in found if taken_by == part)


@given(entries=st.lists(ENTRIES, max_size=12), gpus=st.sets(GPUS, min_size=1))
def test_parts_named_only_by_gpu_type_take_all_options_of_the_type(
    entries: list[dict[str, Any]], gpus: set[str]
) -> None:
    plan, spec = record(*entries), target(*gpus)
    if {each["gpu"] for each in entries} <= gpus:
        assert {(each.option, part) for each, part in allocations_by_part(plan, spec)} == {
            (each["option"], each["gpu"]) for each in entries
        }
    else:
        missing = ", ".join(sorted({each["gpu"] for each in entries} - gpus))
        with pytest.raises(PlanUnusableError, match=f"uses {missing}, for which the target names no deployment"):
            allocations_by_part(plan, spec)


SIZES = (allocated("tp1", 1, 3), allocated("tp4", 4, 2), allocated("tp4", 4, 1, offer="gcp/spot"))


def test_replicas_of_several_sizes_are_mapped_by_size() -> None:
    assert planned_replicas(record(*SIZES), target(H100, f"{H100}/x4", "L4")) == {H100: 3, f"{H100}/x4": 3, "L4": 0}


def test_one_deployment_for_two_sizes_is_refused_with_suggested_parts() -> None:
    with pytest.raises(
        PlanUnusableError, match=r"replicas of 1 and 4 GPUs; .*\(one for each size: H100-SXM/x1, H1.*4\)"
    ):
        planned_replicas(record(*SIZES), target(H100))


def test_one_deployment_for_two_roles_is_refused_with_suggested_parts() -> None:
    roles = (allocated("tp2-prefill", 2, 3), allocated("tp2-decode", 2, 1))
    with pytest.raises(
        PlanUnusableError, match=r"several roles \(decode, prefill\).*: H100-SXM/decode, H100-SXM/prefill\)"
    ):
        planned_replicas(record(*roles), target(H100))
    by_role = target(f"{H100}/prefill", f"{H100}/decode")
    assert planned_replicas(record(*roles), by_role) == {f"{H100}/prefill": 3, f"{H100}/decode": 1}


def test_the_error_for_an_unmapped_option_lists_the_existing_parts() -> None:
    message = r"uses H100-SXM/tp4@1 \(x4\), for which the target names no deployment; it has: H100-SXM/x1, H100-SXM/x2$"
    with pytest.raises(PlanUnusableError, match=message):
        planned_replicas(record(*SIZES), target(f"{H100}/x1", f"{H100}/x2"))


def test_the_error_for_an_unmapped_gpu_type_names_only_the_type() -> None:
    with pytest.raises(PlanUnusableError, match=r"uses H100-SXM, for which .*; it has: H100-NVL/x4"):
        planned_replicas(record(*SIZES), target("H100-NVL/x4"))


CLOCKED = (allocated("tp2", 2, 3), allocated("tp2", 2, 5, clock=0.7))


def test_replicas_of_several_clocks_are_mapped_by_clock() -> None:
    spec = target(f"{H100}/x2", f"{H100}/x2@0.7")
    assert planned_replicas(record(*CLOCKED), spec) == {f"{H100}/x2": 3, f"{H100}/x2@0.7": 5}
    assert planned_clocks(record(*CLOCKED), spec) == {f"{H100}/x2": 1.0, f"{H100}/x2@0.7": 0.7}


def test_one_deployment_for_two_clocks_is_refused_with_suggested_parts() -> None:
    message = r"wants H100-SXM/x2 replicas at clocks 0.7 and 1; .*\(one for each: H100-SXM/x2@0.7, H100-SXM/x2@1\)"
    with pytest.raises(PlanUnusableError, match=message):
        planned_clocks(record(*CLOCKED), target(f"{H100}/x2"))


@pytest.mark.parametrize("part", ["H100-SXM/x2", "H100-SXM/tp2-fp8@0.7", "H100-SXM@1", "RTX 4090", "A/b@350W", "X/x"])
def test_part_names_in_the_form_of_plans_are_accepted(part: str) -> None:
    assert target(part).application.parts == {part: "on-0"}


@pytest.mark.parametrize(
    ("part", "allowed"),
    [
        ("H100-SXM/x0", "the GPUs of one replica, 1 or more"),
        ("H100-SXM/x02", "without leading zeros"),
        ("H100-SXM/x02@0.7", "without leading zeros"),
        ("H100-SXM/x2@0.70", "as plans write it, such as 0.7"),
        ("H100-SXM@1.0", "as plans write it"),
        ("H100-SXM/tp2@0", "a clock above 0"),
        ("H100-SXM/tp2@1.4", "at most 1"),
        ("H100-SXM@1.2.3", "as plans write it"),
    ],
)
def test_part_names_that_no_plan_can_contain_are_refused(part: str, allowed: str) -> None:
    groups = {"namespace": "ml", "cluster": "llm", "groups": {part: "g"}}
    with pytest.raises(ValidationError, match=allowed):
        target(part)
    with pytest.raises(ValidationError, match=allowed):
        RayClusterGroups.model_validate(groups)


def test_two_parts_cannot_share_a_deployment() -> None:
    both = {H100: "on-h100", f"{H100}/x2": "on-h100"}
    with pytest.raises(ValidationError, match="allowed: one for each"):
        RayServeApplication.model_validate(
            {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": both}
        )


def test_expert_maps_are_keyed_by_part() -> None:
    spec = target(f"{H100}/x8", f"{H100}/x4").model_dump(mode="json")
    order = {"placement_id": PLACEMENT, "engine": "vllm", "replicas_url": "http://ray:8000/replicas"}
    given_map = TargetSpec.model_validate(spec | {"expert_maps": {f"{H100}/x8": order}})
    assert given_map.expert_maps.keys() == {f"{H100}/x8"}
    with pytest.raises(ValidationError, match=r"allowed: H100-SXM/x4, H100-SXM/x8"):
        TargetSpec.model_validate(spec | {"expert_maps": {H100: order}})


@pytest.mark.parametrize("level", [1.0, 0.7])
def test_options_of_the_planner_have_distinct_part_names(level: float) -> None:
    plan = solved(from_offers(precisions=["fp8"], rate_rps=200) | {"power_levels": [level]})
    assert plan.allocation
    for each in plan.allocation:
        shape = each.option.removeprefix(f"{each.offer}/").partition("@")[0]
        assert re.fullmatch(r"tp\d(-[a-z]+\d*)*", shape), each.option
        assert part_names(each)[:2] == [f"{each.gpu}/{shape}@{level:g}", f"{each.gpu}/{shape}"]
