"""Stored placements as engine files for orders, and the check that a file fits a replica's engine."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from api.client import AsyncClient, NotFoundError
from fleet.errors import FleetwrightError
from fleetwright.expert_rollout.messages import EngineShape, MapFile, ReplicaStatus
from placement.formats import Engine, export_placement

KEPT = 64


class UnfitError(FleetwrightError):
    """The placement cannot be ordered."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A placement in an engine's format, and its sizes."""

    file: MapFile
    shape: EngineShape


class PlacementFiles:
    """Reads placements from the API and caches them: a stored placement never changes."""

    def __init__(self, api: AsyncClient) -> None:
        self._api = api
        self._kept: OrderedDict[tuple[str, Engine], Fitted] = OrderedDict()

    async def get(self, placement_id: str, engine: Engine) -> Fitted:
        """Return the engine file of a placement.  Raise UnfitError where it is missing or unfit for the engine."""
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
            except UnfitError:
                continue
            found[file.digest] = file
        return found

    async def _read(self, placement_id: str, engine: Engine) -> Fitted:
        try:
            placement = (await self._api.get_placement(placement_id)).placement
        except NotFoundError as error:
            raise UnfitError(f"placement {placement_id!r} does not exist") from error
        try:
            file = MapFile.of(export_placement(placement, engine), placement_id=placement_id)
        except ValueError as error:
            raise UnfitError(f"placement {placement_id} cannot be written for {engine}: {error}") from error
        shape = EngineShape(
            engine=engine.value,
            layers=len(placement.layers),
            experts=placement.experts,
            slots=placement.layout.slots,
            gpus=placement.layout.gpus,
        )
        return Fitted(file, shape)


def check_fits(fitted: Fitted, statuses: Iterable[ReplicaStatus]) -> None:
    """Compare with each replica's engine.  Raise UnfitError, which names the first difference."""
    for entry in statuses:
        for field in ("engine", "layers", "experts", "slots", "gpus"):
            wanted, has = getattr(fitted.shape, field), getattr(entry.shape, field)
            if has is not None and has != wanted:
                version = f" {entry.shape.version}" if entry.shape.version else ""
                raise UnfitError(
                    f"placement {fitted.file.placement_id} is for {field} {wanted}, "
                    f"but {entry.replica_id} ({entry.shape.engine}{version}) has {has}"
                )
