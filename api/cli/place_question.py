"""From options and files to a question about placement; what does not fit is told under the option that brought it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from api.cli.failures import EXIT_BAD_INPUT, CommandError
from api.cli.files import read_document, read_file
from api.cli.place_files import MOST_DOCUMENT_BYTES, placement_in, read_bytes, source_of
from api.cli.textfiles import name_of
from fleet.documents import Flaw, RuleError, dotted, validation_problems
from fleet.errors import DocumentError, Problem
from fleet.models import ModelArchitecture, ModelCatalogue, builtin_models
from placement.arrays import Ints
from placement.document import Placement, Source
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.question import Question, numbered
from placement.shape import Shape

if TYPE_CHECKING:  # only for whoever has a trace
    from placement.tokens import TokenTrace

Loads = tuple[ExpertLoads, tuple[Source, ...]]
OURS = b'"schema_version"'
OPTIONS = ("engine", "slots", "gpus", "nodes", "groups", "max_moves", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files that a question is made of."""

    loads: Sequence[Path]
    trace: Path | None = None
    current: Path | None = None
    gpu_speeds: Path | None = None
    gpu_slots: Path | None = None
    models: Path | None = None


def asked_of(
    files: Files,
    *,
    slots: int,
    gpus: int,
    nodes: int,
    model: str | None,
    least_tokens: float,
    **others: Any,
) -> Question:
    """The question, checked."""
    with flaws_of(files):
        layout = _layout(files, slots=slots, gpus=gpus, nodes=nodes)
        known = None if model is None else _catalogue(files.models).get(model)
        loads, sources = given_loads(files.loads, model=known, least_tokens=least_tokens)
        current, current_source = (
            (None, None) if files.current is None else given_current(files.current, loads, layout, known)
        )
        trace, trace_source = (None, None) if files.trace is None else given_trace(files.trace, loads)
        return Question(
            loads=loads,
            layout=layout,
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


def given_loads(paths: Sequence[Path], *, model: ModelArchitecture | None, least_tokens: float) -> Loads:
    """Loads of a file in whichever form it has, or of several, oldest first."""
    from placement.formats import read_loads, read_windows  # noqa: PLC0415 - readers of forms that no other command needs

    read = [(path, read_bytes(path)) for path in paths]
    named = [(name_of(path), data) for path, data in read]
    experts = None if model is None else model.experts
    if len(named) == 1:
        ((name, data),) = named
        found = read_loads(data, name=name, least_tokens=least_tokens, experts=experts)
    else:
        found = read_windows(named, least_tokens=least_tokens, experts=experts)
    return numbered(found, model), tuple(source_of(path, data) for path, data in read)


def given_trace(path: Path, loads: ExpertLoads) -> tuple["TokenTrace", Source]:
    """The experts of single tokens."""
    from placement.formats import read_trace  # noqa: PLC0415 - as above

    data = read_bytes(path)
    return read_trace(data, name=name_of(path), experts=loads.experts), source_of(path, data)


def given_current(
    path: Path, loads: ExpertLoads, layout: Layout, model: ModelArchitecture | None
) -> tuple[Ints, Source]:
    """What is loaded now: a placement of ours, which must be of the same shape and model, or an engine's own file."""
    from placement.formats import read_loaded  # noqa: PLC0415 - as above

    data = read_bytes(path, most_bytes=MOST_DOCUMENT_BYTES)
    source = source_of(path, data)
    if OURS not in data:
        return read_loaded(data, name=name_of(path), loads=loads, layout=layout).expert_of_slot, source
    found = placement_in(data, path)
    RuleError.raise_for(_current_flaws(found, loads, layout, model))
    return found.expert_of_slot, source


@contextmanager
def flaws_of(files: Files) -> Iterator[None]:
    """What does not fit: a line each, under the option or the file that brought it."""
    try:
        yield
    except RuleError as error:
        raise CommandError(*(_line(files, flaw) for flaw in error.flaws), exit_code=EXIT_BAD_INPUT) from error


def _line(files: Files, flaw: Flaw) -> str:
    path, message = flaw
    first = str(path[0]) if path else ""
    if first in OPTIONS:
        return f"--{first.replace('_', '-')}: {message}"
    brought = getattr(files, first, None) if first != "loads" else None
    if brought is not None:
        return ": ".join(filter(None, (name_of(brought), dotted(path if first != "current" else path[1:]), message)))
    return ": ".join(filter(None, (", ".join(map(name_of, files.loads)), dotted(path), message)))


def _layout(files: Files, *, slots: int, gpus: int, nodes: int) -> Layout:
    shape = {"slots": slots, "gpus": gpus, "nodes": nodes}
    for field in ("gpu_speeds", "gpu_slots"):
        if (path := getattr(files, field)) is not None:
            shape[field] = _list_in(path)
    try:
        return Shape.model_validate(shape).layout
    except ValidationError as error:
        raise RuleError(validation_problems(error)) from error


def _list_in(path: Path) -> Any:
    found = read_document(path)
    if not isinstance(found.data, list):
        raise DocumentError(name=found.name, problems=[Problem("", "expected a JSON list, one number per GPU")])
    return found.data


def _catalogue(path: Path | None) -> ModelCatalogue:
    return builtin_models() if path is None else builtin_models().overlaid(read_file(path, ModelCatalogue))


def _current_flaws(
    current: Placement, loads: ExpertLoads, layout: Layout, model: ModelArchitecture | None
) -> Iterator[Flaw]:
    """What makes the placement that is loaded now one of something else."""
    if model is not None and current.model not in {None, model.name}:
        yield ("current", "model"), f"must be {model.name}, as --model, got {current.model}"
    wanted = {"experts": loads.experts, "slots": layout.slots, "gpus": layout.gpus, "nodes": layout.nodes}
    for field, value in wanted.items():
        if (found := getattr(current, field)) != value:
            yield ("current", field), f"must be {value} as asked for, got {found}: a placement of another shape"
    if current.layers != loads.layers:
        yield ("current", "layers"), f"must be the {len(loads.layers)} layers of the loads, got {len(current.layers)}"
    if current.layout.slots_of_gpu.tolist() != layout.slots_of_gpu.tolist() and current.slots == layout.slots:
        yield ("current", "gpu_slots"), "must be as asked for"
