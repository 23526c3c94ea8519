"""Defines the schemas of path planning: a job's rings over a fabric, and the loads of the plan and of hashing."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from faults.path_planning import FabricLoad, Hashed, Plan, Repair, Row, TrafficJob, hashed, planned
from fleet.documents import Frozen
from fleet.topology import Topology


class PathsRequest(Frozen):
    """A job, its topology and the comparison with hashing."""

    job: TrafficJob
    topology: Topology | None = Field(default=None, description="Switches and nodes; null: the document in force.")
    draws: int = Field(
        default=100, ge=1, le=1000, description="Random draws of source ports for the comparison with hashing."
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Random seed of the draws.")
    choices: bool = Field(
        default=False, description="Whether the response contains the path and port of each connection."
    )


class Repaired(Frozen):
    """The moves of a plan after link failures."""

    moved: int
    opened: int
    closed: int


class PathsResponse(Frozen):
    """The load of the fabric with a plan, with hashing, and the lower bound."""

    job: str
    rings: int
    nics: int
    flows: int
    connections: int
    split_flows: int = Field(description="Flows with more connections than the job gives them.")
    fractional_optimum: float = Field(description="Proven lower bound on the maximum utilisation.")
    proof: str = Field(description="`cut` or `duals`.")
    planned: FabricLoad
    hashed: Hashed
    ports_by: str = Field(description="`model`: source ports follow a model hash, not this fabric's.")
    without_port: int = Field(description="Connections without a known source port.")
    repair: Repaired | None = None
    choices: tuple[Row, ...] | None = None

    @classmethod
    def of(cls, plan: Plan, rows: Sequence[Row], *, draws: int, seed: int, repair: Repair | None = None) -> Self:
        traffic = plan.traffic
        return cls(
            job=traffic.job.name,
            rings=len(traffic.rings),
            nics=len(traffic.nics),
            flows=len(traffic.flows),
            connections=len(plan.parts),
            split_flows=plan.split,
            fractional_optimum=plan.bound.utilisation,
            proof=plan.bound.proof,
            planned=planned(plan),
            hashed=hashed(traffic, draws=draws, seed=seed),
            ports_by=rows[0].by if rows else "model",
            without_port=sum(row.udp_source_port is None for row in rows),
            repair=None if repair is None else Repaired(moved=repair.moved, opened=repair.opened, closed=repair.closed),
        )

    def with_choices(self, rows: Sequence[Row]) -> Self:
        return self.model_copy(update={"choices": tuple(rows)})
