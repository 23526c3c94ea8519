"""The watcher of one job as a process."""

import socket
import time
from pathlib import Path
from typing import TextIO

from prometheus_client import CollectorRegistry

from deploy.guard.process import serve_beside
from deploy.watcher.job import JobFile
from deploy.watcher.loop import WatchLoop
from deploy.watcher.metrics import WatcherMetrics
from deploy.watcher.tellers import Bundles, Lines
from deploy.watcher.watcher_app import watcher_app


async def run_watcher(
    file: JobFile, listener: socket.socket, *, token: str | None, out: TextIO, bundles: Path | None
) -> None:
    """Until told to end."""
    registry = CollectorRegistry()
    zero_s = time.time()
    loop = WatchLoop(
        file,
        lines=Lines(out, job=file.name, zero_s=zero_s),
        metrics=WatcherMetrics(registry, job=file.name),
        bundles=Bundles(bundles, job=file.job(), settings=file.settings) if bundles else None,
        zero_s=zero_s,
    )
    try:
        await serve_beside(watcher_app(loop, registry=registry, token=token), listener, loop.run())
    finally:
        await loop.finish()
