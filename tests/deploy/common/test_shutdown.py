"""SIGTERM ends the work of a process."""

import asyncio
import os
import signal

from deploy.common.shutdown import run_until_sigterm


def test_the_result_of_the_work_is_returned() -> None:
    async def work() -> int:
        return 7

    assert asyncio.run(run_until_sigterm(work())) == 7


def test_sigterm_cancels_the_work() -> None:
    cleaned_up: list[bool] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60.0)
        finally:
            cleaned_up.append(True)
        return 7

    assert asyncio.run(run_until_sigterm(work())) is None
    assert cleaned_up == [True]
