"""Faults on the wire: verdicts with what they rest on, what a replay of that says, and simulations."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from api.schemas.names import Text
from faults.diagnosis import FaultClass, Scope, Verdict
from faults.simulator.answer import Score
from faults.simulator.scenario import ScenarioName
from fleet.documents import Frozen, RuleError, Violation

# One segment of a path, and with what stands before it no longer than an audit's subject may be.
NODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,159}$"
NodeName = Annotated[str, StringConstraints(pattern=NODE_PATTERN)]
DomainLabel = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
NodeIndex = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,6})$")]
Belief = Annotated[float, Field(ge=0.0, le=86_400.0)]

MAX_NODES = 16_384
MAX_SEED = 2**31 - 1
MAX_REASON = 2000  # characters, of a verdict that is reported
MAX_EVIDENCE = 16  # kinds, of one
MAX_BUNDLE_CHARACTERS = 64 * 1024 * 1024  # base64; the limit on bodies is lower


class VerdictReport(Frozen):
    """A verdict of a watcher, in the fleet's words."""

    job: Text = Field(description="Whose traffic it was read from.")
    verdict: Verdict
    nodes: dict[NodeIndex, NodeName] = Field(
        default_factory=dict, max_length=MAX_NODES, description="Names of the job's nodes, by their indices there."
    )
    domains: Annotated[tuple[DomainLabel, ...], Field(max_length=1000)] = Field(
        default=(), description="Of a leaf or uplink: the failure domains that hang on it.  None: its own name."
    )
    believed_for_s: Belief = Field(default=60.0, description="Until then it counts in looks, unless said again.")
    bundle: Annotated[str, StringConstraints(max_length=MAX_BUNDLE_CHARACTERS)] | None = Field(
        default=None, description="What it rests on: a bundle, gzipped, in base64."
    )

    @model_validator(mode="after")
    def _names_its_nodes(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def name_of(self, index: int | None) -> str | None:
        """The node's name in the fleet."""
        return None if index is None else self.nodes.get(str(index))

    def _violations(self) -> Iterator[Violation]:
        for end in ("node", "peer"):
            index = getattr(self.verdict, end)
            if index is not None and self.name_of(index) is None:
                yield ("nodes",), f"must name node {index}, which the verdict names as its {end}"
        if self.verdict.scope in (Scope.NODE, Scope.RANK) and self.verdict.node is None:
            yield ("verdict", "node"), f"a verdict on a {self.verdict.scope.value} must name a node"


class BeliefChange(Frozen):
    """For how long from now a verdict is believed."""

    believed_for_s: Belief = Field(description="0: no longer.")


class VerdictRecord(Frozen):
    """One stored verdict.  Only `believed_until` ever changes."""

    id: str = Field(description="Sorts by time of creation.")
    created_at: datetime
    created_by: str
    believed_until: datetime
    job: str
    verdict: Verdict
    node: str | None = Field(description="Name of the node that the verdict names.")
    peer: str | None
    nodes: dict[str, str]
    domains: tuple[str, ...]
    bundle_sha256: str | None = Field(description="Of the bundle's text; null: it came without one.")


class VerdictSummary(Frozen):
    """A verdict in a list."""

    id: str
    created_at: datetime
    created_by: str
    believed_until: datetime
    job: str
    fault: FaultClass
    scope: Scope
    node: str | None
    peer: str | None
    switch: str | None
    isolate: bool
    confidence: float
    reason: str
    has_bundle: bool


class BundleReplay(Frozen):
    """What this service's code says of the observations in a bundle."""

    verdict_id: str
    same: bool = Field(description="Whether that is what the bundle says, bit for bit.")
    names_it: bool = Field(description="Whether the fault that was reported is among it.")
    written_by: str = Field(description="Version that wrote the bundle.")
    replayed_by: str
    dropped: int = Field(description="Calls that the tape had lost when the bundle was written.")
    said: tuple[Verdict, ...]
    replayed: tuple[Verdict, ...]
    run_s: float


class FaultQuestion(Frozen):
    """A cluster to be simulated before the detectors."""

    ranks: int = Field(default=1024, ge=128, le=131_072, multiple_of=64)
    hours: float = Field(default=1.0, ge=1 / 60, le=8760)
    scenario: ScenarioName = ScenarioName.MIXED
    seed: int = Field(default=0, ge=0, le=MAX_SEED)

    @property
    def rank_hours(self) -> float:
        """What it costs, about."""
        return self.ranks * self.hours


class FaultSimulationRecord(Frozen):
    """One stored simulation of faults."""

    id: str = Field(description="Sorts by time of creation.")
    created_at: datetime
    created_by: str
    request: FaultQuestion
    simulation: Score


class FaultSimulationSummary(Frozen):
    """A simulation of faults in a list."""

    id: str
    created_at: datetime
    created_by: str
    ranks: int
    hours: float
    scenario: str
    seed: int
    faults: int
    recall: float | None
    precision: float | None
    false_isolations: int
