"""Paths on the wire: a job's rings over a fabric, and what their plan loads against what hashing does."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from faults.path_planning import Hashed, Load, Plan, Repair, Row, TrafficJob, hashed, planned
from fleet.documents import Frozen
from fleet.topology import Topology


class PathsRequest(Frozen):
    """Whose paths, over what."""

    job: TrafficJob
    topology: Topology | None = Field(default=None, description="Switches and nodes; null: the document in force.")
    draws: int = Field(default=100, ge=1, le=1000, description="Of source ports, for the hashed comparison.")
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Of those draws.")
    choices: bool = Field(default=False, description="Whether the answer names the path and port of each connection.")


class Repaired(Frozen):
    """What a plan moved after links died."""

    moved: int
    opened: int
    closed: int


class PathsAnswer(Frozen):
    """How loaded the fabric is with a plan, with hashing, and at best."""

    job: str
    rings: int
    nics: int
    flows: int
    connections: int
    split_flows: int = Field(description="Flows with more connections than the job gives them.")
    fractional_optimum: float = Field(description="Greatest utilisation that no assignment can beat.")
    proof: str = Field(description="`cut` or `duals`.")
    planned: Load
    hashed: Hashed
    ports_by: str = Field(description="`model`: source ports follow a model hash, not this fabric's.")
    without_port: int = Field(description="Connections for which no source port is known.")
    repair: Repaired | None = None
    choices: tuple[Row, ...] | None = None

    @classmethod
    def of(cls, plan: Plan, rows: Sequence[Row], *, draws: int, seed: int, repair: Repair | None = None) -> Self:
        """A plan, measured."""
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
        """The same with a row per connection."""
        return self.model_copy(update={"choices": tuple(rows)})
