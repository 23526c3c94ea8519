"""Loads the catalogues and prices of local planning, and defines their options."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.errors import InputError
from api.cli.common.files import read_file, read_text
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue, builtin_models
from fleet.offers import PriceSheet, builtin_prices
from planner import Plan, PlanRequest, plan
from planner.policy import ExplainLevel
from planner.profiles import Profiles, read_points

ModelsOption = Annotated[
    Path | None, typer.Option("--models", metavar="FILE", help="Model catalogue to lay over the shipped one.")
]
OffersOption = Annotated[
    Path | None, typer.Option("--offers", metavar="FILE", help="Price sheet to use instead of the shipped sample.")
]
ProfilesOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles", metavar="FILE", help="Measured points: a file of `profiles import`, or any file that it reads."
    ),
]
ExplainOption = Annotated[
    ExplainLevel | None,
    typer.Option("--explain", help="How much to explain; overrides policy.explain of the request."),
]


@dataclass(frozen=True, slots=True)
class World:
    """Holds the catalogues and prices for planning."""

    gpus: GpuCatalogue
    models: ModelCatalogue
    prices: PriceSheet

    def at_prices(self, prices: PriceSheet) -> "World":
        return replace(self, prices=prices)


def planning_context(*, gpus: GpuCatalogue, models: Path | None, prices: PriceSheet | None) -> World:
    """Merge the user's files over the shipped catalogues."""
    known_models = builtin_models() if models is None else builtin_models().overlaid(read_file(models, ModelCatalogue))
    return World(gpus=gpus, models=known_models, prices=builtin_prices() if prices is None else prices)


def with_profiles(request: PlanRequest, path: Path | None, *, gpus: GpuCatalogue) -> PlanRequest:
    if path is None:
        return request
    if request.profiles is not None:
        raise InputError("--profiles: the request has its own profiles: give one of them")
    points = read_points(read_text(path), name=str(path), gpus=gpus, models=builtin_models()).points
    return request.model_copy(update={"profiles": Profiles(points=points)})


def planned(request: PlanRequest, world: World, *, now: datetime, clock_s: Callable[[], float]) -> Plan:
    return plan(
        request,
        gpus=world.gpus,
        models=world.models,
        prices=world.prices,
        now=now,
        clock_s=clock_s,
    )
