"""What Kueue's workloads are for power: their watts, their rows, and whether they draw or wait."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.demand import DemandModel, UnknownDemandError
from deploy.kueue_power.queue import Place, PowerQueue, job_of, queue_of
from deploy.kueue_power.workloads import PROFILE, WATTS, WATTS_PER_GPU, AdmissionCheck, Workload
from deploy.kueue_power.writes import active_patch, message_of, state_of, state_patch
from fleet.documents import parse_document, read_model
from fleet.errors import DocumentError
from fleet.gpus import builtin_gpus
from power.job_admission import Admitted, Held

CHECK, ROW_LABEL = "power", "fleetwright.io/row"
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
FILE = PowerCheckFile(
    tree="hall", rows=("row-a", "row-b"), profiles_w={"training": 500.0}, overhead_share=0.5, retry_s=30
)
FLAVORS = {"h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "of-row-b": {ROW_LABEL: "row-b"}}
MODEL = DemandModel(file=FILE, gpus=builtin_gpus(), flavors=FLAVORS)

GPUS_FOR_A_STEP = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
A_SLICE = {"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}


def pod_set(
    name: str = "main",
    *,
    gpus: Any = 4,
    count: int = 2,
    row: str | None = None,
    watts: str | None = None,
    profile: str | None = None,
    pods: dict[str, Any] | None = None,
) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": "4", "nvidia.com/gpu": gpus}}}
    selector = {} if row is None else {ROW_LABEL: row}
    spec = {"containers": [container, {}], "nodeSelector": selector} | (pods or {})
    stated = {WATTS_PER_GPU: watts, PROFILE: profile}
    annotations = {key: value for key, value in stated.items() if value is not None}
    return {"name": name, "count": count, "template": {"metadata": {"annotations": annotations}, "spec": spec}}


def workload(
    *pod_sets: dict[str, Any],
    conditions: dict[str, str] | None = None,
    check: dict[str, Any] | None = None,
    flavor: str = "h100",
    **spec: Any,
) -> Workload:
    sets = pod_sets or (pod_set(),)
    stated = {"QuotaReserved": "True"} if conditions is None else conditions
    assigned = [{"name": each["name"], "flavors": {"cpu": "any", "nvidia.com/gpu": flavor}} for each in sets]
    return Workload.model_validate(
        {
            "metadata": {
                "name": "w",
                "namespace": "team",
                "uid": "u-1",
                "resourceVersion": "7",
                "creationTimestamp": "2026-11-28T10:00:00Z",
            },
            "spec": {"podSets": sets} | spec,
            "status": {
                "conditions": [
                    {"type": kind, "status": status, "lastTransitionTime": "2026-11-28T11:00:00Z"}
                    for kind, status in stated.items()
                ],
                "admission": {"podSetAssignments": assigned},
                "admissionChecks": [
                    {"name": "other", "state": "Pending"},
                    {"name": CHECK, "state": "Pending"} | (check or {}),
                ],
            },
        }
    )


def queue(one: Workload, *, places: dict[str, Place] | None = None, now_s: float = 0.0) -> PowerQueue:
    return queue_of([one], checks=[CHECK], model=MODEL, places=places or {}, now_s=now_s)


def ready(row: str, watts: str) -> dict[str, Any]:
    update = {"name": "main", "nodeSelector": {ROW_LABEL: row}, "annotations": {WATTS: watts}}
    return {"state": "Ready", "podSetUpdates": [update]}


@pytest.mark.parametrize(
    ("sets", "watts"),
    [
        ([pod_set()], 8 * 700 * 1.5),
        ([pod_set(gpus="4"), pod_set("driver", gpus=0)], 8 * 700 * 1.5),
        ([pod_set(watts="650.5")], 8 * 650.5),
        ([pod_set(profile="training"), pod_set("more", gpus=1, count=1, watts="100")], 4_100),
        ([pod_set(gpus=0)], 0),
        ([pod_set(gpus=1, pods={"initContainers": [GPUS_FOR_A_STEP]})], 8 * 700 * 1.5),
        ([pod_set(gpus=1, pods={"initContainers": [GPUS_FOR_A_STEP | {"restartPolicy": "Always"}]})], 10 * 700 * 1.5),
    ],
)
def test_the_watts_of_a_workload(sets: list[dict[str, Any]], watts: float) -> None:
    assert MODEL.of(workload(*sets)).watts == pytest.approx(watts)


@pytest.mark.parametrize(
    ("sets", "flavor", "message"),
    [
        ([pod_set()], "unknown", "set a label of the GPU type on the resource flavor"),
        ([pod_set(watts="-1")], "h100", "allowed: 0 to 100,000 W, got '-1'"),
        ([pod_set(watts="nan")], "h100", "allowed: 0 to 100,000 W, got 'nan'"),
        ([pod_set(profile="trainings")], "h100", "unknown profile 'trainings'; known: training"),
        ([pod_set(gpus="1k")], "h100", "the number of GPUs is no whole number"),
        ([pod_set(gpus=0, pods={"resourceClaims": [{"name": "gpus"}]})], "h100", "expected whole GPUs: nvidia.com/gpu"),
        ([pod_set(gpus=0, pods={"containers": [A_SLICE]})], "h100", "expected whole GPUs: nvidia.com/gpu"),
    ],
)
def test_unknown_watts_name_what_to_add(sets: list[dict[str, Any]], flavor: str, message: str) -> None:
    with pytest.raises(UnknownDemandError, match=message):
        MODEL.of(workload(*sets, flavor=flavor))


@pytest.mark.parametrize(
    ("one", "rows"),
    [
        (workload(), None),
        (workload(pod_set(row="row-a")), {"row-a"}),
        (workload(pod_set(watts="1"), flavor="of-row-b"), {"row-b"}),
        (workload(pod_set(row="row-a"), pod_set("other", row="row-b")), set()),
    ],
)
def test_selectors_and_flavors_limit_the_rows(one: Workload, rows: set[str] | None) -> None:
    assert MODEL.of(one).rows == rows


def test_jobs_of_a_check_that_is_not_usable_draw_but_are_not_decided() -> None:
    def of(one: Workload) -> PowerQueue:
        return queue_of([one], checks=[CHECK], undecided=[CHECK], model=MODEL, places={}, now_s=0.0)

    assert [job.demand_w for job in of(workload(check=ready("row-b", "1234.5"))).running] == [1234.5]
    assert not of(workload()).queued
    assert not of(workload()).waiting


def test_an_admitted_workload_draws_the_watts_of_its_admission_on_its_row() -> None:
    stated = {"QuotaReserved": "True", "Admitted": "True"}
    one = workload(conditions=stated, check=ready("row-b", "1234.5"), maximumExecutionTimeSeconds=60)
    (job,) = queue(one).running
    assert (set(job.rows), job.demand_w, job.ends_at_s) == (
        {"row-b"},
        1234.5,
        datetime(2026, 11, 28, 11, 1, tzinfo=UTC).timestamp(),
    )


def test_a_finished_workload_draws_nothing() -> None:
    found = queue(workload(conditions={"Finished": "True", "QuotaReserved": "True"}, check=ready("row-b", "1")))
    assert (found.running, found.waiting) == ((), ())


def test_an_evicted_workload_counts_on_every_row_until_its_quota_is_released() -> None:
    leaving = queue(workload(conditions={"QuotaReserved": "True", "Evicted": "True"}))
    assert [(set(job.rows), job.demand_w) for job in leaving.running] == [({"row-a", "row-b"}, 8_400)]
    assert queue(workload(conditions={"QuotaReserved": "False", "Evicted": "True"})).running == ()


def test_a_workload_that_was_sent_back_has_not_drawn() -> None:
    found = queue(workload(conditions={"QuotaReserved": "True", "Evicted": "True"}, check={"retryCount": 1}))
    assert found.running == ()


def test_a_workload_keeps_its_place_without_quota_for_a_time() -> None:
    one = workload(conditions={"QuotaReserved": "False"})
    place = Place(job=job_of(one, MODEL.of(one), ready=False), until_s=100.0)
    assert queue(one, places={"u-1": place}, now_s=99.0).waiting == (place.job,)
    assert queue(one, places={"u-1": place}, now_s=100.0).waiting == ()
    assert queue(one).waiting == ()


def test_an_admission_is_one_patch_of_the_version_that_was_read() -> None:
    one = workload(pod_set(), pod_set("driver", gpus=0), check={"retryCount": 2})
    entry = queue(one).queued["team/w"]
    admitted = Admitted(job=job_of(one, entry.demand), row="row-a", free_w=9_000, limit_w=10_000)

    patch = state_patch(one, entry.at, state_of(admitted, entry.demand, entry.check, FILE, now=NOW))

    assert patch == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/status/admissionChecks/1/name", "value": "power"},
        {
            "op": "replace",
            "path": "/status/admissionChecks/1",
            "value": {
                "name": "power",
                "state": "Ready",
                "message": "row row-a: the job needs 8,400 W, 9,000 of 10,000 W were free",
                "lastTransitionTime": "2026-11-28T12:00:00Z",
                "retryCount": 2,
                "podSetUpdates": [
                    {"name": "main", "nodeSelector": {ROW_LABEL: "row-a"}, "annotations": {WATTS: "8400"}}
                ],
            },
        },
    ]


def test_a_held_job_names_the_row_the_queue_and_the_time() -> None:
    held = Held(
        job=job_of(workload(), MODEL.of(workload())),
        row="row-a",
        free_w=400,
        limit_w=9_000,
        ahead=("team/early",),
        expected_at_s=NOW.timestamp(),
    )
    assert message_of(held) == (
        "row row-a: the job needs 8,400 W, 400 of 9,000 W are free; 1 earlier job waits: team/early;"
        " expected by 2026-11-28 12:00:00Z"
    )


def test_the_condition_of_a_check_is_written_once() -> None:
    check = {"metadata": {"name": CHECK, "generation": 3, "resourceVersion": "9"}, "spec": {"controllerName": "c"}}
    patch = active_patch(AdmissionCheck.model_validate(check), now=NOW)
    assert patch is not None
    written = AdmissionCheck.model_validate(check | {"status": patch["status"]})
    assert patch["metadata"] == {"resourceVersion": "9"}
    assert active_patch(written, now=NOW) is None


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"rows": ["row-a", "row-a"]}, "must be unique, got 'row-a' 2 times"),
        ({"rows": ["row:1"]}, "must be values of a node label"),
        ({"rows": []}, "expected at least one"),
        ({"retry_s": 0}, "retry_s"),
        ({"profiles_w": {"p": -1}}, "profiles_w"),
    ],
)
def test_the_configuration_names_the_wrong_field(field: dict[str, Any], problem: str) -> None:
    fields = {"tree": "hall", "rows": ["row-a"]} | field
    with pytest.raises(DocumentError, match=problem):
        read_model(parse_document(json.dumps(fields), name="power.yaml"), PowerCheckFile)
