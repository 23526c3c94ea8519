"""Structured logs: one JSON object a line on stderr, each with the id of the request it belongs to.

stdout stays free for what a command answers.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.dev import plain_traceback
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from api.server.settings import LogFormat

_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(*, level: str, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send our own and every library's log records through one formatter to one stream, by default stderr."""
    stream = stream or sys.stderr
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Neither shows local variables, which structlog does by default: they may hold secrets.
    renderer: list[Processor] = (
        [
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
        if log_format is LogFormat.JSON
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain_traceback)]
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_SHARED),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("alembic", "httpx", "httpcore", "aiosqlite"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for replaced in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # the last one: our middleware logs requests
        logging.getLogger(replaced).handlers = []
        logging.getLogger(replaced).propagate = replaced != "uvicorn.access"
