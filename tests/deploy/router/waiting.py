"""Waiting for conditions with a timeout."""

import asyncio
from collections.abc import Callable

from tests.testbed.waiting import PATIENCE_S


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail after the timeout."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
