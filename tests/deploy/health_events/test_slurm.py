"""Slurm by a `scontrol` executable: names, owners, states of several releases, and failures."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.health_events import EventDiagnosis, HealthEvent, HealthState
from deploy.common.errors import ActuationError, UnreachableError
from deploy.health_events.outlet import NotOwnedError
from deploy.health_events.slurm import (
    MAX_REASON,
    OWN_REASON,
    Scontrol,
    SlurmNode,
    SlurmNodes,
    SlurmOutlet,
    observed,
    reason_of,
)
from faults.diagnosis import FaultClass, Scope
from tests.deploy.health_events.fake_scontrol import FakeScontrol

pytestmark = pytest.mark.anyio
AT = datetime(2026, 11, 21, tzinfo=UTC)


def event(state: HealthState = HealthState.OUT_OF_SERVICE, *, node: str = "n1", job: str | None = "llm") -> HealthEvent:
    cause = job and EventDiagnosis(
        id="d", job=job, fault=FaultClass.CRASH, scope=Scope.NODE, confidence=0.9, reason="gone"
    )
    return HealthEvent(id="a" * 32, at=AT, state=state, node=node, diagnosis=cause or None)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeScontrol:
    slurm = FakeScontrol(tmp_path)
    slurm.write("n1 n2")
    return slurm


def outlet(slurm: FakeScontrol) -> SlurmOutlet:
    return SlurmOutlet(scontrol=Scontrol(command=slurm.command))


async def test_a_repeated_drain_and_a_repeated_return_run_one_command_each(slurm: FakeScontrol) -> None:
    assert await outlet(slurm).send(event()) == f"drained: fleetwright: crash in job llm, event {'a' * 32}"
    assert await outlet(slurm).send(event()) == "was drained before"
    assert await outlet(slurm).send(event(HealthState.HEALTHY)) == "returned to service"
    assert await outlet(slurm).send(event(HealthState.HEALTHY)) == "is not drained"
    assert slurm.updates() == ["n1 drain", "n1 undrain"]


@pytest.mark.parametrize("name", ["ALL", "all", "n[1-2]", "n1,n2", "-n1", "n1 state=down", "n1:2", ""])
async def test_a_name_that_could_mean_other_nodes_runs_no_command(slurm: FakeScontrol, name: str) -> None:
    with pytest.raises(ActuationError, match="is not the name of one Slurm node"):
        await outlet(slurm).send(event().model_copy(update={"node": name}))
    assert slurm.updates() == []


async def test_a_node_that_slurm_does_not_know_is_not_drained(slurm: FakeScontrol) -> None:
    with pytest.raises(ActuationError, match="Slurm has no node n9"):
        await outlet(slurm).send(event(node="n9"))
    assert await outlet(slurm).send(event(HealthState.HEALTHY, node="n9")) == "Slurm has no such node"


@pytest.mark.parametrize("state", [["DOWN"], ["IDLE", "DRAIN"], ["MIXED", "DRAIN"], ["IDLE", "FAIL"], ["MAINTENANCE"]])
async def test_a_node_that_is_out_for_another_cause_is_not_touched(slurm: FakeScontrol, state: list[str]) -> None:
    slurm.change("n1", state=state, reason="slurm-operator: cordon")
    with pytest.raises(NotOwnedError, match="slurm-operator: cordon"):
        await outlet(slurm).send(event())
    await outlet(slurm).send(event(HealthState.HEALTHY))
    assert slurm.updates() == []


async def test_a_return_keeps_other_causes(slurm: FakeScontrol) -> None:
    await outlet(slurm).send(event())
    slurm.change("n1", state=["DOWN", "DRAIN", "NOT_RESPONDING"])
    await outlet(slurm).send(event(HealthState.HEALTHY))
    assert slurm.nodes()["n1"]["state"] == ["DOWN", "NOT_RESPONDING"]


async def test_the_errors_of_a_command_are_reported(slurm: FakeScontrol, tmp_path: Path) -> None:
    slurm.stop()
    with pytest.raises(UnreachableError, match="Unable to contact slurm controller"):
        await outlet(slurm).send(event())
    slurm.stop(stopped=False)
    slurm.refuse("Access/permission denied")
    with pytest.raises(ActuationError, match="update ended with status 1: slurm_update error: Access") as refused:
        await outlet(slurm).send(event())
    assert not isinstance(refused.value, UnreachableError)  # the other nodes do not wait
    (tmp_path / "nodes.json").write_text('[{"state": []}]')
    with pytest.raises(ActuationError, match=r"show nodes --json: nodes\.0\.name"):
        await SlurmNodes(scontrol=Scontrol(command=slurm.command)).observe()
    with pytest.raises(ActuationError, match="cannot be started"):
        await Scontrol(command=str(tmp_path / "nowhere")).nodes()


async def test_nodes_have_pools_states_and_conditions(slurm: FakeScontrol) -> None:
    slurm.change("n2", state=["DOWN", "NOT_RESPONDING"], reason="Not responding", reason_changed_at={"number": 17})
    found = await SlurmNodes(scontrol=Scontrol(command=slurm.command)).observe()
    assert [(each.pool, each.available, each.idle) for each in found.values()] == [
        ("train", True, True),
        ("train", False, False),
    ]
    assert found["n2"].owner == "Slurm (DOWN+NOT_RESPONDING): Not responding"
    assert [(each.kind, each.since) for each in found["n2"].conditions] == [("DOWN", "17"), ("NOT_RESPONDING", "17")]


@pytest.mark.parametrize(
    ("fields", "states"),
    [
        ({"state": ["MIXED", "DRAIN"]}, {"MIXED", "DRAIN"}),  # 23.11 and newer
        ({"state": "mixed", "state_flags": ["DRAIN"]}, {"MIXED", "DRAIN"}),  # 21.08
        ({"state": "IDLE+DRAIN*"}, {"IDLE", "DRAIN"}),
    ],
)
def test_states_of_older_releases_are_read(fields: dict[str, Any], states: set[str]) -> None:
    node = SlurmNode.model_validate_json(json.dumps({"name": "n", "reason": f"{OWN_REASON} x"} | fields))
    assert (set(node.states), node.is_ours, observed(node).owner) == (states, True, None)


@given(job=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FFF), min_size=1, max_size=500))
def test_a_reason_is_short_ours_and_has_no_meaning_to_a_shell(job: str) -> None:
    cause = EventDiagnosis.model_construct(
        id="d", job=job, fault=FaultClass.CRASH, scope=Scope.NODE, confidence=1.0, reason="", peer=None
    )
    reason = reason_of(event().model_copy(update={"diagnosis": cause}))
    assert reason.startswith(OWN_REASON)
    assert reason.endswith("a" * 32)
    assert len(reason) <= MAX_REASON
    assert not set(reason) & set("$`\"'\\;|&<>(){}[]*?!#~=\n")
