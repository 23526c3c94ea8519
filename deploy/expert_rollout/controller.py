"""The expert rollout of one target per reconcile: read, decide, write at most one command.

The only state is a cache of immutable files.  The command is one key of one deployment's user_config in Serve's
declared configuration; the replicas' status comes from the application's ingress.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx
import structlog
from pydantic import TypeAdapter, ValidationError

from api.client import AsyncClient, NotFoundError
from api.schemas.applications import RayServeApplication
from api.schemas.expert_maps import ExpertMapPhase, ExpertMapSpec, ExpertMapStatus
from api.schemas.targets import Phase, Target
from deploy.actuators.base import ConfigWrite, TargetSnapshot, UserConfig
from deploy.actuators.registry import ActuatorFactory
from deploy.common.errors import ActuationError, OvertakenError, UnreachableError
from deploy.common.leader_election import Leadership
from deploy.common.text import digest_of_json, joined, one_line
from deploy.expert_rollout.rollout import DeploymentState, Done, Move, Refused, Wait, Write, next_move, roll_back_move
from fleet.errors import FleetwrightError
from fleetwright.expert_rollout.messages import (
    KEY,
    DamagedError,
    EngineShape,
    MapFile,
    ReplicaStatus,
    RolloutCommand,
    read_command,
    stamp_of,
)
from placement.formats import Engine, export_placement

log = structlog.get_logger()

KEPT = 64
TIMEOUT = httpx.Timeout(10.0, connect=3.0)
GONE_STATES = {"STOPPING"}
RUNNING = "RUNNING"
SETTLED = {Phase.APPLIED, Phase.OBSERVED}


class CountWrite(Protocol):
    """Counts a write to a target."""

    def __call__(self, *, target: str, kind: str) -> None: ...


class IncompatiblePlacementError(FleetwrightError):
    """The placement cannot be rolled out."""


@dataclass(frozen=True, slots=True)
class EngineFile:
    file: MapFile
    shape: EngineShape


class PlacementFiles:
    """Reads placements from the API and caches them: a stored placement never changes."""

    def __init__(self, api: AsyncClient) -> None:
        self._api = api
        self._kept: OrderedDict[tuple[str, Engine], EngineFile] = OrderedDict()

    async def get(self, placement_id: str, engine: Engine) -> EngineFile:
        """Return the engine file of a placement.

        Raise IncompatiblePlacementError where it is missing or unfit for the engine.
        """
        key = (placement_id, engine)
        if (known := self._kept.get(key)) is None:
            known = await self._read(placement_id, engine)
            self._kept[key] = known
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return known

    async def known(self, statuses: Iterable[ReplicaStatus], engine: Engine) -> dict[str, MapFile]:
        """Return the files of the replicas' loaded maps, by digest, as far as their placements are stored."""
        found: dict[str, MapFile] = {}
        for entry in statuses:
            if entry.loaded is None or entry.loaded in found or entry.placement_id is None:
                continue
            try:
                file = (await self.get(entry.placement_id, engine)).file
            except IncompatiblePlacementError:
                continue
            found[file.digest] = file
        return found

    async def _read(self, placement_id: str, engine: Engine) -> EngineFile:
        try:
            placement = (await self._api.get_placement(placement_id)).placement
        except NotFoundError as error:
            raise IncompatiblePlacementError(f"placement {placement_id!r} does not exist") from error
        try:
            file = MapFile.of(export_placement(placement, engine), placement_id=placement_id)
        except ValueError as error:
            raise IncompatiblePlacementError(
                f"placement {placement_id} cannot be written for {engine}: {error}"
            ) from error
        shape = EngineShape(
            engine=engine.value,
            layers=len(placement.layers),
            experts=placement.experts,
            slots=placement.layout.slots,
            gpus=placement.layout.gpus,
        )
        return EngineFile(file, shape)


def check_fits(engine_file: EngineFile, statuses: Iterable[ReplicaStatus]) -> None:
    """Compare with each replica's engine.  Raise IncompatiblePlacementError, which names the first difference."""
    for entry in statuses:
        for name in ("engine", "layers", "experts", "slots", "gpus"):
            wanted, has = getattr(engine_file.shape, name), getattr(entry.shape, name)
            if has is not None and has != wanted:
                version = f" {entry.shape.version}" if entry.shape.version else ""
                raise IncompatiblePlacementError(
                    f"placement {engine_file.file.placement_id} is for {name} {wanted}, "
                    f"but {entry.replica_id} ({entry.shape.engine}{version}) has {has}"
                )


@dataclass(frozen=True, slots=True)
class StatusResponse:
    replicas: list[ReplicaStatus]


_RESPONSE = TypeAdapter(StatusResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    phase: Phase
    message: str | None
    maps: Mapping[str, ExpertMapStatus] = field(default_factory=dict)
    digest: str | None = None  # of the maps that wait for a write or an approval


@dataclass(frozen=True, slots=True)
class _Part:
    gpu: str
    application: str
    deployment: str
    wanted: ExpertMapSpec
    user_config: UserConfig
    state: DeploymentState
    digest: str | None  # of the wanted map; None: its file does not exist
    move: Move


@dataclass(slots=True, kw_only=True)
class ExpertMaps:
    """Rolls expert maps out to the deployments of targets."""

    api: AsyncClient
    actuators: ActuatorFactory
    http: httpx.AsyncClient
    leadership: Leadership
    wrote: CountWrite
    _files: PlacementFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = PlacementFiles(self.api)

    async def advance(
        self,
        target: Target,
        *,
        observation: TargetSnapshot,
        phase: Phase,
        message: str | None,
        observe_only: bool,
        may_write: bool,
        approved: str | None = None,
    ) -> Outcome:
        """Advance one deployment by one step, once the replica counts have settled (`phase`).

        Deployments follow one another: the next one begins when the previous one is done.  `approved` is the digest of
        the maps that an operator has approved.
        """
        application = target.spec.application
        if not target.spec.expert_maps or phase not in SETTLED or not isinstance(application, RayServeApplication):
            return Outcome(phase=phase, message=message)
        parts = [
            await self._observe(application, observation, gpu, wanted)
            for gpu, wanted in sorted(target.spec.expert_maps.items())
        ]
        due = next((part for part in parts if isinstance(part.move, Write | Wait)), None)
        wrote, digest = False, None
        found = _phase_of(parts)
        if due is not None and isinstance(due.move, Write):
            digest = digest_of_maps(target)
            if not may_write:
                found = Phase.RECOMMENDED
            elif target.spec.require_approval and approved != digest:
                found = Phase.AWAITING_APPROVAL
            else:
                found, wrote = await self._write(target, due, due.move.command)
                digest = None
        maps = {part.gpu: _status(part, wrote=wrote and part is due) for part in parts}
        if observe_only or found is None:
            found = phase
        return Outcome(
            phase=found, message=joined(message, _message(maps)), maps=maps, digest=None if observe_only else digest
        )

    async def _observe(
        self, application: RayServeApplication, observation: TargetSnapshot, gpu: str, wanted: ExpertMapSpec
    ) -> _Part:
        deployment = application.deployments[gpu]
        found = observation.deployment(deployment)
        statuses = {entry.replica_id: entry for entry in await self._fetch_statuses(wanted, deployment)}
        states = found.replicas
        running = frozenset(name for name, state in states.items() if state == RUNNING)
        state = DeploymentState(
            requested=found.requested,
            running=running,
            unsettled=sum(state not in GONE_STATES for state in states.values()) - len(running),
            stamp=stamp_of(found.user_config),
            command=_command_in(found.user_config),
            statuses={name: entry for name, entry in statuses.items() if name in running},
        )
        digest, move = await self._decide(wanted, state)
        return _Part(gpu, application.application, deployment, wanted, found.user_config, state, digest, move)

    async def _decide(self, wanted: ExpertMapSpec, state: DeploymentState) -> tuple[str | None, Move]:
        digest = None
        try:
            engine_file = await self._files.get(wanted.placement_id, wanted.engine)
            digest = engine_file.file.digest
            check_fits(engine_file, state.statuses.values())
        except IncompatiblePlacementError as error:
            return digest, roll_back_move(reason=str(error), state=state)
        known = await self._files.known(state.statuses.values(), wanted.engine) if state.command is None else {}
        return digest, next_move(wanted=engine_file.file, attempt=wanted.attempt, state=state, known=known)

    async def _fetch_statuses(self, wanted: ExpertMapSpec, deployment: str) -> list[ReplicaStatus]:
        url = str(wanted.replicas_url)
        try:
            response = await self.http.get(url, params={"deployment": deployment}, timeout=TIMEOUT)
        except httpx.RequestError as error:
            raise UnreachableError(f"{url} does not respond: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise UnreachableError(f"{url} returned {response.status_code}")
        try:
            return _RESPONSE.validate_json(response.content).replicas
        except ValidationError as error:
            raise ActuationError(f"{url} returned no replica status: {error.errors()[0]['msg']}") from error

    async def _write(self, target: Target, part: _Part, command: RolloutCommand) -> tuple[Phase, bool]:
        # The target and the freeze are read as late as possible, as for every write.
        if (await self.api.get_target(target.name)).document != target:
            return Phase.APPLYING, False
        if (await self.api.get_freeze()).document.frozen:
            return Phase.FROZEN, False
        try:
            async with self.leadership.acting():
                await self.actuators(target.spec.application).apply(
                    ConfigWrite(
                        deployment=part.deployment, key=KEY, value=command.document(), expected=part.user_config
                    )
                )
        except OvertakenError:
            return Phase.APPLYING, False
        self.wrote(target=target.name, kind=KEY)
        log.info(
            "expert_map_commanded",
            target=target.name,
            deployment=part.deployment,
            placement_id=part.wanted.placement_id,
            command=command.number,
            turn=command.turn,
            refusal=command.refusal,
        )
        return Phase.APPLYING, True


def digest_of_maps(target: Target) -> str:
    """Return the digest of all maps of a target, which an operator approves once.

    It includes the target's version, so a replaced and restored target needs a new approval.
    """
    spec = target.spec
    wanted = [
        (part, spec.application.parts[part], each.placement_id, each.engine, each.attempt)
        for part, each in sorted(spec.expert_maps.items())
    ]
    return digest_of_json(["expert maps", target.version, wanted])


def _command_in(user_config: UserConfig) -> RolloutCommand | None:
    try:
        return read_command(user_config[KEY])
    except (KeyError, DamagedError):
        return None


def _phase_of(parts: list[_Part]) -> Phase | None:
    if any(isinstance(part.move, Refused) for part in parts):
        return Phase.FAILED
    return Phase.APPLYING if any(isinstance(part.move, Wait) for part in parts) else None


def _status(part: _Part, *, wrote: bool) -> ExpertMapStatus:
    statuses = [part.state.statuses[name] for name in sorted(part.state.running) if name in part.state.statuses]
    has = [entry for entry in statuses if entry.loaded is not None and entry.loaded == part.digest]
    command = part.state.command
    refusing = sum(bool(entry.refusals) for entry in statuses if entry not in has)
    phase, message = _phase_and_message(part.move, wrote=wrote)
    return ExpertMapStatus(
        placement_id=part.wanted.placement_id,
        phase=phase,
        replicas=len(part.state.running),
        loaded=len(has),
        waiting=len(part.state.running) - len(has) - refusing,
        refused=refusing,
        turn=None if command is None or command.turn is None else command.turn[:200],
        message=one_line(message) if message else None,
    )


def _phase_and_message(move: Move, *, wrote: bool) -> tuple[ExpertMapPhase, str | None]:
    match move:
        case Write():
            return (ExpertMapPhase.ROLLING if wrote else ExpertMapPhase.WANTED), None
        case Wait(reason):
            return ExpertMapPhase.WAITING, reason
        case Refused(reason):
            return ExpertMapPhase.REFUSED, reason
        case Done():
            return ExpertMapPhase.LOADED, None


def _message(maps: Mapping[str, ExpertMapStatus]) -> str | None:
    return "; ".join(f"expert map of {gpu}: {entry.message}" for gpu, entry in maps.items() if entry.message) or None
