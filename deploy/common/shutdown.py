"""The end of a process by SIGTERM."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_until_sigterm(work: Coroutine[Any, Any, Result]) -> Result | None:
    """Run `work`; SIGTERM cancels it, also in process 1 of a container, where the default ignores the signal.

    None where the work was cancelled.
    """
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None
