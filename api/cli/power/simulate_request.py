"""Builds the request of a simulation from options and files; a violation names its option."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.cli.common.errors import InputError
from api.cli.common.files import name_of, read_file, read_text
from fleet.documents import RuleError, Violation, dotted, validation_problems
from fleet.gpus import builtin_gpus
from power.measured_models.document import PowerShares
from power.server_model import ServerModel
from power.whatif.request import RowRequest
from power.workload import Sources, read_sources


def request_from(**fields: Any) -> RowRequest:
    """Return the validated request; options without a value keep their defaults."""
    with option_errors():
        return RowRequest(**{name: value for name, value in fields.items() if value is not None})


def given_sources(paths: Sequence[Path]) -> Sources:
    """Read the work of the row: traces of requests, and at most one file of rates that shapes the day."""
    with option_errors():
        return read_sources([(path.name or name_of(path), read_text(path)) for path in paths])


def given_server(
    server: Path | None, curves: Path | None, *, gpu: str | None, model: str | None, together: int | None
) -> ServerModel | None:
    """Return the server model from a file or from fitted curves; None selects the built-in model."""
    if server is not None:
        if curves is not None or gpu is not None or model is not None:
            message = "--server describes a server outright, --gpu, --model and --curves by fitted curves: give one"
            raise InputError(message)
        return read_file(server, ServerModel)
    if curves is None and gpu is None and model is None:
        return None
    if gpu is None or model is None:
        raise InputError("--gpu and --model are required together")
    from power.measured_models import builtin_curves  # noqa: PLC0415 - large, and hardly ever asked for
    from power.measured_models.servers import server_model  # noqa: PLC0415 - as above

    fitted = builtin_curves() if curves is None else read_file(curves, PowerShares)
    with option_errors():
        return server_model(fitted, builtin_gpus().get(gpu), model=model, together=together or 1)


@contextmanager
def option_errors() -> Iterator[None]:
    """Report each violation on a line, under the option that caused it."""
    try:
        yield
    except RuleError as error:
        raise InputError(*map(_line, error.violations)) from error
    except ValidationError as error:
        raise InputError(*map(_line, validation_problems(error))) from None


def _line(violation: Violation) -> str:
    (field, *inner), message = violation[0] or ("servers",), violation[1]
    option = "--trace" if field == "traces" else f"--{str(field).replace('_', '-')}"
    return ": ".join(filter(None, (option, dotted(inner), message)))
