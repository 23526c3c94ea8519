"""Defines the schemas of diagnoses with their bundles, replays of bundles, and simulations."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from api.schemas.names import Text
from api.schemas.results import ResultHead, ResultType
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.simulator.result import Score
from faults.simulator.scenario import ScenarioName
from fleet.documents import Frozen, RuleError, Violation

# One path segment; with its prefix it fits into the subject of an audit entry.
NODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,159}$"
NodeName = Annotated[str, StringConstraints(pattern=NODE_PATTERN)]
DomainLabel = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
NodeIndex = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,6})$")]
ExpiresIn = Annotated[float, Field(ge=0.0, le=86_400.0)]

MAX_NODES = 16_384
MAX_SEED = 2**31 - 1
MAX_REASON = 2000  # characters, of a reported diagnosis
MAX_EVIDENCE = 16  # kinds of evidence, of a reported diagnosis
MAX_BUNDLE_CHARACTERS = 64 * 1024 * 1024  # base64; the limit on request bodies is lower


class DiagnosisReport(Frozen):
    """A diagnosis of a fault monitor, with the node names of the fleet."""

    job: Text = Field(description="The monitored job.")
    diagnosis: Diagnosis
    nodes: dict[NodeIndex, NodeName] = Field(
        default_factory=dict, max_length=MAX_NODES, description="Names of the job's nodes, by index."
    )
    domains: Annotated[tuple[DomainLabel, ...], Field(max_length=1000)] = Field(
        default=(), description="Failure domains behind a leaf or uplink.  None: the name of the switch."
    )
    expires_in_s: ExpiresIn = Field(default=60.0, description="The quarantine policy uses the diagnosis until then.")
    bundle: Annotated[str, StringConstraints(max_length=MAX_BUNDLE_CHARACTERS)] | None = Field(
        default=None, description="The evidence: a bundle, gzipped, in base64."
    )

    @model_validator(mode="after")
    def _names_its_nodes(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def name_of(self, index: int | None) -> str | None:
        return None if index is None else self.nodes.get(str(index))

    def _violations(self) -> Iterator[Violation]:
        for end in ("node", "peer"):
            index = getattr(self.diagnosis, end)
            if index is not None and self.name_of(index) is None:
                yield ("nodes",), f"must name node {index}, the {end} of the diagnosis"
        if self.diagnosis.scope in (Scope.NODE, Scope.RANK) and self.diagnosis.node is None:
            yield ("diagnosis", "node"), f"a diagnosis of a {self.diagnosis.scope.value} must name a node"


class ExpiryChange(Frozen):
    """A new expiry of a diagnosis, counted from now."""

    expires_in_s: ExpiresIn = Field(description="0 withdraws the diagnosis.")


class DiagnosisHead(ResultHead):
    """The fields of every stored diagnosis, in a list too.  Only `expires_at` changes."""

    expires_at: datetime
    job: str
    node: str | None = Field(description="Name of the diagnosed node.")
    peer: str | None


class DiagnosisRecord(DiagnosisHead):
    """One stored diagnosis."""

    diagnosis: Diagnosis
    nodes: dict[str, str]
    domains: tuple[str, ...]
    bundle_sha256: str | None = Field(description="Of the bundle's text; null: reported without a bundle.")


class DiagnosisSummary(DiagnosisHead):
    """A diagnosis in a list."""

    fault: FaultClass
    scope: Scope
    switch: str | None
    isolate: bool
    confidence: float
    reason: str
    has_bundle: bool


class BundleReplay(Frozen):
    """The diagnoses that this service gives for the observations of a bundle."""

    diagnosis_id: str
    same: bool = Field(description="Whether they equal those of the bundle, bit for bit.")
    includes_report: bool = Field(description="Whether the reported fault is among them.")
    written_by: str = Field(description="Version that wrote the bundle.")
    replayed_by: str
    dropped: int = Field(description="Calls before the first one of the bundle.")
    bundled: tuple[Diagnosis, ...]
    replayed: tuple[Diagnosis, ...]
    run_s: float


class FaultSimulationRequest(Frozen):
    """A cluster to simulate."""

    ranks: int = Field(default=1024, ge=128, le=131_072, multiple_of=64)
    hours: float = Field(default=1.0, ge=1 / 60, le=8760)
    scenario: ScenarioName = ScenarioName.MIXED
    seed: int = Field(default=0, ge=0, le=MAX_SEED)

    @property
    def rank_hours(self) -> float:
        return self.ranks * self.hours


class FaultSimulationRecord(ResultHead):
    """One stored simulation of faults."""

    request: FaultSimulationRequest
    simulation: Score


class FaultSimulationSummary(ResultHead):
    """A simulation of faults in a list."""

    ranks: int
    hours: float
    scenario: str
    seed: int
    faults: int
    recall: float | None
    precision: float | None
    false_isolations: int


FAULT_SIMULATIONS = ResultType(
    name="fault simulation",
    path="faults/simulations",
    field="simulation",
    request=FaultSimulationRequest,
    record=FaultSimulationRecord,
    summary=FaultSimulationSummary,
)
