"""The fit of coefficients to measured rows as JSON, for the API; the fit itself also for the command line."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from fleet.documents import Frozen, RuleError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from planner.performance.aiconfigurator import COLUMNS, Reading, read_points, silicon_models
from planner.performance.closed_loop import Sample
from planner.performance.coefficients import Coefficients, Error
from planner.performance.fitting import MIN_POINTS, fit, held_back, validate

MAX_ROWS = 20_000
MIN_GPUS, MIN_CURVES = 2, 2
Cell = Annotated[str, StringConstraints(max_length=200)]


class FitRequest(Frozen):
    """Rows of measured runs."""

    rows: Annotated[tuple[dict[str, Cell], ...], Field(min_length=1, max_length=MAX_ROWS)] = Field(
        description="One per run: the columns of aiconfigurator's silicon_sample that are not empty."
    )
    source: Annotated[str, StringConstraints(min_length=1, max_length=500)] = Field(description="Of the rows.")
    date: dt.date | None = Field(default=None, description="Of the fit; null: today.")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(default=0, description="Chooses the held-out points.")
    validation: bool = Field(default=True, description="Measure errors on held-out points; takes minutes.")

    def fitted(
        self, *, gpus: GpuCatalogue, models: ModelCatalogue, today: dt.date, report: Callable[[Error], None]
    ) -> Coefficients:
        """Fit the coefficients; RuleError where too few rows can be used.  `report` receives each measured error."""
        rows = ({name: row.get(name, "") for name in COLUMNS} for row in self.rows)
        reading = read_points(rows, gpus=gpus, models=(models, silicon_models()))
        if (reason := unusable(reading)) is not None:
            raise RuleError([(("rows",), reason)])
        seed = self.seed if self.validation else None
        return fit_coefficients(reading, source=self.source, day=self.date or today, seed=seed, report=report)


def fit_coefficients(
    reading: Reading, *, source: str, day: dt.date, seed: int | None, report: Callable[[Error], None]
) -> Coefficients:
    """Fit coefficients, and with a seed measure their errors on held-out points."""
    sample = Sample(reading.points)
    found = fit(sample, fitted=day, source=source, rejected=reading.rejected)
    return found if seed is None else found.model_copy(update={"errors": tuple(_errors(sample, seed, report))})


def unusable(reading: Reading) -> str | None:
    """Return why the points cannot be fitted; None where they can.  Intervals come from leaving points out."""
    points = reading.points
    if len(points) < MIN_POINTS:
        return f"{len(points)} points can be used, expected at least {MIN_POINTS}"
    if len(gpus := {point.config.gpu.name for point in points}) < MIN_GPUS:
        return f"the points are of {', '.join(gpus)} alone, expected at least {MIN_GPUS} GPU types"
    if len(curves := {point.curve for point in points}) < MIN_CURVES:
        return f"the points have {len(curves)} configurations and sizes, expected at least {MIN_CURVES}"
    return None


def _errors(sample: Sample, seed: int, report: Callable[[Error], None]) -> Sequence[Error]:
    found = []
    for split, held in held_back(sample, seed=seed):
        error = validate(sample, split=split, held=held).error
        report(error)
        found.append(error)
    return found
