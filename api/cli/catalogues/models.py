"""`fleetwright models`: read and replace model architectures, and derive the figures of a `config.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.files import locate_errors, read_document
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.tables import Column, number, print_fields, table_of
from fleet.errors import DocumentError, Problem
from fleet.models import ModelArchitecture, ModelCatalogue, builtin_models, model_from_hf_config

FP16_BYTES = 2.0
COLUMNS = (
    Column("model", of="name"),
    number("params 10^9", decimals=2, of=lambda model: model.parameters / 1e9),
    number("active 10^9", decimals=2, of=lambda model: model.active_parameters / 1e9),
    number("layers", of="layers"),
    Column("attention", of="attention"),
    number("KV KiB/token", decimals=1, of=lambda model: model.kv_bytes_per_token(kv_bytes=FP16_BYTES) / 1024),
    number("experts", of=lambda model: model.experts or None),
    number("of them active", of=lambda model: model.experts_active or None),
)


def _derived(_catalogue: ModelCatalogue, model: ModelArchitecture) -> dict[str, Any]:
    return {
        "active_parameters": model.active_parameters,
        "matmul_parameters": model.matmul_parameters,
        "routed_parameters": model.routed_parameters,
        "weight_bytes_bf16": int(model.weight_bytes(parameter_bytes=2.0)),
        "kv_bytes_per_token_fp16": int(model.kv_bytes_per_token(kv_bytes=FP16_BYTES)),
    }


app = document_app(
    Kind(
        name="models",
        entry_name="model",
        model=ModelCatalogue,
        builtin=builtin_models,
        overlaid=ModelCatalogue.overlaid,
        table=lambda catalogue: table_of(COLUMNS, catalogue.models),
        names=lambda catalogue: (model.name for model in catalogue.models),
        entry=ModelCatalogue.get,
        derived=_derived,
    )
)


@app.command("from-config")
def from_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model's config.json, or - for stdin.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the model.")],
    output: FormatOption = Format.TABLE,
) -> None:
    """Compute a model's figures from its Hugging Face config.json.

    With --format json the result is a catalogue of this model, for `plan --models` and `models list --file`.
    """
    document = read_document(file)
    if not isinstance(document.data, Mapping):
        found = "is empty, " if document.data is None else ""
        message = f"{found}expected a mapping of fields, as in a model's config.json"
        raise DocumentError(name=document.name, problems=[Problem("", message)])
    with locate_errors(lambda _place: document):
        model = model_from_hf_config(document.data, name=name)
    catalogue = ModelCatalogue(models=(model,))
    if output is Format.JSON:
        print_json(catalogue)
    else:
        print_fields(model.model_dump(mode="json") | _derived(catalogue, model))
