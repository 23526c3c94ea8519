"""Logs of guard and agents: one JSON object a line on stderr, without the service's parts."""

import logging
import sys

import structlog


def configure_logs(*, level: str) -> None:
    """Send our own records and every library's to stderr."""
    least = logging.getLevelNamesMapping()[level]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables, which may hold secrets.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        # Where stderr is when something is said, not when this was called: whoever replaced it in between may be gone.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(least, logging.WARNING), stream=sys.stderr)
