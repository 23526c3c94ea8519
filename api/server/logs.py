"""Writes structured logs: one JSON object per line on stderr, with the id of its request.

stdout stays free for the result of a command.
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
    """Format the records of the product and of every library alike, on one stream, by default stderr."""
    stream = stream or sys.stderr
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Neither formats local variables, structlog's default: they may contain secrets.
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
    for replaced in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # access logs: the middleware logs requests
        logging.getLogger(replaced).handlers = []
        logging.getLogger(replaced).propagate = replaced != "uvicorn.access"
