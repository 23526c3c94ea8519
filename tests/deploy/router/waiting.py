"""Waiting for what sockets bring."""

import asyncio
from collections.abc import Callable

from tests.testbed.waiting import PATIENCE_S


async def until(holds: Callable[[], bool]) -> None:
    """Return when it holds; fail when it does not for long."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)
