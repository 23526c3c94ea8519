"""Isolates the logging configuration, which is global to the process, between tests."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

SET_UP = ("api", "deploy", "alembic", "httpx", "httpcore", "aiosqlite", "uvicorn", "uvicorn.error", "uvicorn.access")


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Undo all effects of `configure_logs` at the end."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    others = {name: (found := logging.getLogger(name), found.level, found.propagate) for name in SET_UP}
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        for logger, its_level, propagate in others.values():
            logger.setLevel(its_level)
            logger.propagate = propagate
        structlog.configure(**before)
