"""Logs of every process: one JSON object per line on stderr.  stdout stays free for the result of a command."""

import logging
import sys
from typing import TextIO

import structlog
from structlog.dev import plain_traceback
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

_OWN = ("api", "deploy")
_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Reads stderr at each record: a program that replaced stderr at the time of the set-up may have closed it."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        pass


def configure_logs(
    *, level: str, libraries: str = "WARNING", console: bool = False, stream: TextIO | None = None
) -> None:
    """Format the records of this product, and those of libraries, alike on one stream, by default stderr.

    `libraries` is the minimum severity of libraries' records, where it is above `level`.
    """
    levels = logging.getLevelNamesMapping()
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(levels[level]),
        cache_logger_on_first_use=False,
    )
    # Neither formats local variables, structlog's default: they may contain secrets.
    renderer: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=(stream or sys.stderr).isatty(), exception_formatter=plain_traceback)]
        if console
        else [
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    handler = _CurrentStderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_SHARED),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(levels[level], levels[libraries]))
    for own in _OWN:
        logging.getLogger(own).setLevel(levels[level])
    for noisy in ("alembic", "httpx", "httpcore", "aiosqlite"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for replaced in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # access logs: the middleware logs requests
        logging.getLogger(replaced).handlers = []
        logging.getLogger(replaced).propagate = replaced != "uvicorn.access"
