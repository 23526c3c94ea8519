"""Logs of every process but the API: one JSON object per line on stderr, without dependencies of the API."""

import logging
import sys

import structlog


def configure_logs(*, level: str) -> None:
    """Send the records of this product, and warnings and errors of libraries, to stderr."""
    least = logging.getLevelNamesMapping()[level]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables, which may contain secrets.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        # Read stderr at each record: a program that replaced stderr at the time of this call may have closed it since.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(least, logging.WARNING), stream=sys.stderr)
