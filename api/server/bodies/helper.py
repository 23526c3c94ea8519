"""The process that checks large bodies, so that the event loop parses only what is valid.

It reads requests from its standard input and writes one answer to each: nothing for a valid body, or the problem.  A
body that needs too much memory or processor time ends the process; `checker` starts another.  It also ends with its
parent, whose end of the pipe the kernel closes.
"""

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, BinaryIO

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from api.jobs.body import PARTLY_CHARACTERS
from api.jobs.pruning import prune, reliable_errors
from api.server.bodies.limits import ANSWER, CHECK_CPU_S, KEPT_BYTES, MEMORY_BYTES, OUT_OF_MEMORY, READY, REQUEST
from api.server.bodies.reading import parse_document
from api.server.problems import ProblemError, invalid, to_problem


def main() -> None:
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group; the parent ends this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # short of memory, the kernel ends this process first
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not become part of an answer
    answers.write(READY)
    answers.flush()
    try:
        _serve(requests, answers)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # without the traceback, for which there may be no memory either


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    start_bytes = _data_bytes()
    while header := requests.read(REQUEST.size):
        name_size, body_size = REQUEST.unpack(header)
        answer = _answer(requests.read(name_size).decode(), requests.read(body_size))
        ends = _data_bytes() > start_bytes + KEPT_BYTES
        _send(answers, {"problem": answer, "ends": ends})
        if ends:
            break


def _answer(name: str, body: bytes) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(resolve_name(name))
    _limit_memory(_data_bytes() + MEMORY_BYTES)
    signal.setitimer(signal.ITIMER_PROF, CHECK_CPU_S)  # its signal ends the process
    try:
        check(adapter, body)
    except ProblemError as problem:
        return _as_json(problem)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the parent raises it as its own
        return _as_json(to_problem(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _limit_memory(resource.RLIM_INFINITY)
    return None


def check(adapter: TypeAdapter[Any], body: bytes) -> None:
    """Raise the problem that the body has for a model."""
    try:
        document = parse_document(body)
    except json.JSONDecodeError as error:
        raise invalid("body", f"must be JSON; at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError):  # as FastAPI: another encoding, or nested too deep
        raise HTTPException(400) from None
    if len(body) > PARTLY_CHARACTERS:
        part, whole = prune(document)
        _validate(adapter, part, is_part=not whole)
        if whole:
            return
    _validate(adapter, document, is_part=False)


def _validate(adapter: TypeAdapter[Any], document: Any, *, is_part: bool) -> None:
    try:
        adapter.validate_python(document)
    except ValidationError as error:
        items: list[Any] = error.errors(include_url=False)
        found = reliable_errors(items) if is_part else items
        if found:
            problem = to_problem(RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]))
            if is_part:
                problem.detail += "; only the first part of the body was checked"
            raise problem from None


def _as_json(problem: ProblemError) -> dict[str, Any]:
    return {
        "status": problem.status,
        "kind": problem.kind,
        "detail": problem.detail,
        "errors": [each.model_dump(mode="json") for each in problem.errors],
        "headers": problem.headers,
    }


def _limit_memory(size_bytes: int) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [each for each in (size_bytes, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits, default=resource.RLIM_INFINITY), hard))


def _send(answers: BinaryIO, answer: Any) -> None:
    text = json.dumps(answer).encode()
    answers.write(ANSWER.pack(len(text)) + text)
    answers.flush()


def _data_bytes() -> int:
    """What `RLIMIT_DATA` counts."""
    with Path("/proc/self/statm").open() as pages:
        return int(pages.read().split()[5]) * resource.getpagesize()


if __name__ == "__main__":
    main()
