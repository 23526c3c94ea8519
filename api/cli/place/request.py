"""Builds a placement problem from options and files; each violation is reported under its option or file."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.common.errors import InputError
from api.cli.common.files import MIB, name_of, read_bytes, read_file
from api.cli.place.layout import LayoutOptions
from fleet.documents import MAX_PROBLEMS, RuleError, Violation, dotted, validation_problems
from fleet.errors import DocumentError, Problem
from fleet.models import ModelArchitecture, ModelCatalogue, builtin_models
from placement.arrays import Ints
from placement.document import Placement, Source
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.problem import PlacementProblem, numbered

if TYPE_CHECKING:  # only with a trace
    from placement.token_trace import TokenTrace

Loads = tuple[ExpertLoads, tuple[Source, ...]]
MAX_PLACEMENT_BYTES = 256 * MIB
PLACEMENT_MARK = b'"schema_version"'
OPTIONS = {
    "engine",
    "method",
    "time_limit_s",
    "slots",
    "gpus",
    "nodes",
    "groups",
    "max_moves",
    "model",
    "on",
    "memory_share",
    "expert_bytes",
    "move_gb_per_s",
    "node_gb_per_s",
    "figure",
}
FIELD = re.compile(r"`([a-z_]+)`")
OPTION_NAMES = {"figure": "speed-by", "time_limit_s": "time-limit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    loads: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOADS...", help="Recorded loads in any supported form; several files are windows, added up."
        ),
    ]
    trace: Annotated[Path | None, typer.Option(metavar="TRACE", help="Experts of each token: .npz or .npy.")] = None
    current: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The current placement: move the fewest copies.")
    ] = None
    models: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Model catalogue that extends the built-in one.")
    ] = None


def build_problem(
    files: InputFiles,
    layout_options: LayoutOptions,
    *,
    model: str | None,
    least_tokens: float,
    **others: Any,
) -> PlacementProblem:
    with report_violations(files, layout_options):
        known = None if model is None else _catalogue(files.models).get(model)
        loads, sources = loads_from(files.loads, model=known, least_tokens=least_tokens)
        shape = layout_options.shape(loads, known)
        layout = shape.layout
        current, current_source = (
            (None, None) if files.current is None else current_from(files.current, loads, layout, known)
        )
        trace, trace_source = (None, None) if files.trace is None else trace_from(files.trace, loads)
        return PlacementProblem(
            loads=loads,
            layout=layout,
            node_names=shape.node_names,
            node_costs=shape.costs,
            trace=trace,
            current=current,
            model=known,
            model_name=None if known is None else known.name,
            least_tokens=least_tokens,
            loads_sources=sources,
            trace_source=trace_source,
            current_source=current_source,
            **others,
        ).checked()


def loads_from(paths: Sequence[Path], *, model: ModelArchitecture | None, least_tokens: float) -> Loads:
    """Read loads from one file in any form, or from several, oldest first."""
    from placement.formats import read_loads, read_windows  # noqa: PLC0415 - readers of forms that no other command needs

    read = [(path, read_bytes(path)) for path in paths]
    named = [(name_of(path), data) for path, data in read]
    experts = None if model is None else model.experts
    with _report_options():
        if len(named) == 1:
            ((name, data),) = named
            found = read_loads(data, name=name, least_tokens=least_tokens, experts=experts)
        else:
            found = read_windows(named, least_tokens=least_tokens, experts=experts)
    return numbered(found, model), tuple(source_of(path, data) for path, data in read)


def trace_from(path: Path, loads: ExpertLoads) -> tuple["TokenTrace", Source]:
    """Read the trace, which has the experts of single tokens."""
    from placement.formats import read_trace  # noqa: PLC0415 - as above

    data = read_bytes(path)
    found = read_trace(data, name=name_of(path), experts=loads.experts)
    return found, source_of(path, data)


def current_from(
    path: Path, loads: ExpertLoads, layout: Layout, model: ModelArchitecture | None
) -> tuple[Ints, Source]:
    """Read a placement.json of the same layout and model, or an engine's own file."""
    from placement.formats import read_loaded  # noqa: PLC0415 - as above

    data = read_bytes(path, max_bytes=MAX_PLACEMENT_BYTES)
    if PLACEMENT_MARK not in data:
        loaded = read_loaded(data, name=name_of(path), loads=loads, layout=layout)
        return loaded.expert_of_slot, source_of(path, data)
    found = placement_in(data, path)
    RuleError.raise_for(_current_violations(found, loads, layout, model))
    return found.expert_of_slot, source_of(path, data)


def source_of(path: Path, data: bytes) -> Source:
    """Return the provenance entry of a file."""
    from placement.formats import kind_of  # noqa: PLC0415 - readers of forms that no other command needs

    kind = kind_of(data, name=name_of(path))
    return Source(name=name_of(path), sha256=hashlib.sha256(data).hexdigest(), format=kind)


def placement_from(path: Path) -> tuple[Placement, Source]:
    """Return the placement of a file, and its provenance entry."""
    data = read_bytes(path, max_bytes=MAX_PLACEMENT_BYTES)
    found = placement_in(data, path)
    return found, source_of(path, data)


def placement_in(data: bytes, path: Path) -> Placement:
    try:
        return Placement.model_validate_json(data)
    except ValidationError as error:
        found = validation_problems(error)[:MAX_PROBLEMS]
        problems = [Problem(dotted(place), message) for place, message in found]
        raise DocumentError(name=name_of(path), problems=problems) from error


@contextmanager
def report_violations(files: InputFiles, layout_options: LayoutOptions) -> Iterator[None]:
    """Report violations, a line each, under their option or file."""
    try:
        yield
    except RuleError as error:
        raise InputError(*(_line(files, layout_options, violation) for violation in error.violations)) from error


@contextmanager
def _report_options() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        problems = [replace(problem, message=with_option_names(problem.message)) for problem in error.problems]
        raise DocumentError(name=error.name, problems=problems) from error


def with_option_names(message: str) -> str:
    """Replace field names in a message by option names."""
    return FIELD.sub(lambda named: f"--{named[1].replace('_', '-')}", message)


def _line(files: InputFiles, layout_options: LayoutOptions, violation: Violation) -> str:
    path, message = violation[0], with_option_names(violation[1])
    first = str(path[0]) if path else ""
    if first == "nodes" and layout_options.topology is not None:
        first, path = "on", ("on", *path[1:])
    if isinstance(brought := getattr(files, first, None) or getattr(layout_options, first, None), Path):
        place = dotted(path[1:] if first == "current" else path)
        return ": ".join(filter(None, (name_of(brought), place, message)))
    if first in OPTIONS:
        return f"--{OPTION_NAMES.get(first, first).replace('_', '-')}: {message}"
    return ": ".join(filter(None, (", ".join(map(name_of, files.loads)), dotted(path), message)))


def _catalogue(path: Path | None) -> ModelCatalogue:
    return builtin_models() if path is None else builtin_models().overlaid(read_file(path, ModelCatalogue))


def _current_violations(
    current: Placement, loads: ExpertLoads, layout: Layout, model: ModelArchitecture | None
) -> Iterator[Violation]:
    """Return the differences between the current placement and the problem."""
    if model is not None and current.model not in {None, model.name}:
        yield ("current", "model"), f"must be {model.name}, as --model, got {current.model}"
    wanted = {"experts": loads.experts, "slots": layout.slots, "gpus": layout.gpus, "nodes": layout.nodes}
    for field, value in wanted.items():
        if (found := getattr(current, field)) != value:
            yield ("current", field), f"must be {value} as requested, got {found}: a placement of another layout"
    if current.layers != loads.layers:
        yield ("current", "layers"), f"must be the {len(loads.layers)} layers of the loads, got {len(current.layers)}"
    if current.layout.slots_of_gpu.tolist() != layout.slots_of_gpu.tolist() and current.slots == layout.slots:
        yield ("current", "gpu_slots"), "must be as requested"
    if (current.gpus, current.nodes) == (layout.gpus, layout.nodes) and (
        current.layout.node_of_gpu != layout.node_of_gpu
    ).any():
        yield ("current", "node_gpus"), "must be as requested"
