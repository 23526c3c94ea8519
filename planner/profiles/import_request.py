"""The import of several results as JSON, for the API; the merging also for the command line."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from fleet.documents import Frozen
from fleet.errors import DocumentError, Problem
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from planner.profiles.imports import Format, read_points
from planner.profiles.points import Profiles
from planner.profiles.raw_points import Given

MAX_TEXTS = 200
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Ways = Annotated[int, Field(ge=1, le=1024)]


class ResultText(Frozen):
    """The text of one result."""

    name: Text = Field(description="Names the text in problems, and is the default source of its runs.")
    text: str = Field(description="Of vLLM, SGLang or GuideLLM, a CSV table, or a document of points.")
    format: Format | None = Field(default=None, description="Null: detected.")


class ImportRequest(Frozen):
    """Results to merge, and the values that fill their gaps."""

    results: Annotated[tuple[ResultText, ...], Field(min_length=1, max_length=MAX_TEXTS)]
    model: Text | None = None
    gpu: Text | None = None
    tensor_parallel: Ways | None = None
    pipeline_parallel: Ways | None = None
    data_parallel: Ways | None = None
    expert_parallel: Ways | None = None
    precision: Text | None = None
    engine: Text | None = None
    engine_version: Text | None = None
    date: dt.date | None = None
    source: Text | None = None

    def imported(self, *, gpus: GpuCatalogue, models: ModelCatalogue) -> "ImportedProfiles":
        """Merge the results; DocumentError names every defect of all of them."""
        merged = merge(self.results, given=self.given, gpus=gpus, models=models)
        if merged.failures:
            raise DocumentError(
                name="request",
                problems=[
                    Problem(f"results[{index}]", f"{error.name}: {': '.join(filter(None, (each.path, each.message)))}")
                    for index, error in merged.failures
                    for each in error.problems
                ],
            )
        return merged.profiles

    @property
    def given(self) -> Given:
        return Given(**{name: getattr(self, name) for name in Given.__dataclass_fields__})


class ReadResult(Frozen):
    """What the import has found in one result."""

    name: str
    format: Format
    runs: int
    left_out: int = Field(description="Rows of split prefill and decode, which are no replica.")


class ImportedProfiles(Frozen):
    """The merged points, and the results that they come from."""

    results: tuple[ReadResult, ...]
    profiles: Profiles


@dataclass(frozen=True, slots=True)
class Merged:
    """Holds what was read, and the errors of the other results by their place."""

    profiles: ImportedProfiles
    failures: Sequence[tuple[int, DocumentError]]


def merge(results: Sequence[ResultText], *, given: Given, gpus: GpuCatalogue, models: ModelCatalogue) -> Merged:
    """Merge the points of all results; every one is read before any defect is reported."""
    profiles, read, failures = Profiles(points=()), list[ReadResult](), list[tuple[int, DocumentError]]()
    for index, each in enumerate(results):
        try:
            found = read_points(each.text, name=each.name, gpus=gpus, models=models, form=each.format, given=given)
        except DocumentError as error:
            failures.append((index, error))
            continue
        profiles = profiles.with_points(found.points)
        read.append(ReadResult(name=each.name, format=found.format, runs=len(found.points), left_out=found.left_out))
    return Merged(ImportedProfiles(results=tuple(read), profiles=profiles), failures)
