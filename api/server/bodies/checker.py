"""Has large bodies checked by a helper process: it starts with the first one, and again after it was killed."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import structlog

from api.schemas.problems import FieldProblem
from api.server.bodies.limits import ANSWER, CHECK_CPU_S, MEMORY_BYTES, READY, REQUEST
from api.server.problems import ProblemError

WALL_S = 60.0  # for a check on a busy machine, with the start of the process

log = structlog.get_logger("fleetwright.bodies")


class BodyChecker:
    """Checks one body at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def check(self, model: type[Any], body: bytes) -> None:
        """Raise the problem that a body has for a model."""
        name = f"{model.__module__}:{model.__qualname__}"
        async with self._one_at_a_time:
            answer = await self._ask(name, body)
        if (problem := answer["problem"]) is not None:
            raise ProblemError(
                status=HTTPStatus(problem["status"]),
                kind=problem["kind"],
                detail=problem["detail"],
                errors=[FieldProblem.model_validate(each) for each in problem["errors"]],
                headers=problem["headers"],
            )

    async def close(self) -> int | None:
        """End the process; return its exit status, negative where a signal ended it."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def _ask(self, name: str, body: bytes) -> Any:
        try:
            async with asyncio.timeout(WALL_S):
                answer = await self._exchange(name, body)
        except (EOFError, OSError) as error:  # a time-out is an OSError too
            status = await self.close()
            log.warning("body_check_ended", model=name, size_bytes=len(body), status=status, cause=repr(error))
            raise _too_costly() from None
        except BaseException:  # cancelled: the answer to this body is still to come
            await self.close()
            raise
        if answer["ends"]:
            await self.close()
        return answer

    async def _exchange(self, name: str, body: bytes) -> Any:
        if self._process is None or not self.is_running:
            self._process = await _start()
            if self._process.stdout is None or await self._process.stdout.readline() != READY:
                raise RuntimeError("the process that checks bodies did not start")
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise AssertionError("both are pipes")
        encoded = name.encode()
        requests.write(REQUEST.pack(len(encoded), len(body)) + encoded)
        requests.write(body)
        await requests.drain()
        (size_bytes,) = ANSWER.unpack(await answers.readexactly(ANSWER.size))
        return json.loads(await answers.readexactly(size_bytes))


async def _start() -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "api.server.bodies.helper",
        stdin=PIPE,
        stdout=PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _too_costly() -> ProblemError:
    return ProblemError(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        kind="body-too-costly",
        detail=f"body: its check was ended; allowed: {CHECK_CPU_S:g} s of a processor and "
        f"{MEMORY_BYTES // 1024**2} MiB of memory",
    )
