"""One function on many inputs, in local processes or on a Ray cluster; results in the order of completion."""

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import cpu_count
from typing import Any, Protocol, TypeVar

from fleet.errors import FleetwrightError

Input = TypeVar("Input")
Result = TypeVar("Result")

CONNECT_S = 5.0


class UnreachableClusterError(FleetwrightError):
    """No Ray cluster responds at the address."""


class Runner(Protocol):
    def run(self, work: Callable[[Input], Result], inputs: Sequence[Input]) -> Iterator[tuple[int, Result]]:
        """Yield (position of the input, result), in the order of completion."""


class Processes:
    """Runs work in local processes, spawned instead of forked: a solver's state must not be forked."""

    def __init__(self, *, workers: int | None = None) -> None:
        self._workers = workers or cpu_count() or 1

    def run(self, work: Callable[[Input], Result], inputs: Sequence[Input]) -> Iterator[tuple[int, Result]]:
        """Run the work in this process where one worker is enough."""
        workers = min(self._workers, len(inputs))
        if workers <= 1:
            yield from ((position, work(given)) for position, given in enumerate(inputs))
            return
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            position_of = {pool.submit(work, given): position for position, given in enumerate(inputs)}
            try:
                for future in as_completed(position_of):
                    yield position_of[future], future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


class RayTasks:
    """Runs work as tasks on a Ray cluster whose nodes have this package installed."""

    def __init__(self, *, address: str) -> None:
        self._address = address

    def run(self, work: Callable[[Input], Result], inputs: Sequence[Input]) -> Iterator[tuple[int, Result]]:
        import ray  # noqa: PLC0415 - an extra, and seconds to import

        check_reachable(self._address)
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UnreachableClusterError(f"no Ray cluster at {self._address}: {error}") from error
        try:
            task: Any = ray.remote(num_cpus=1)(_called(work))
            waiting = {task.remote(given): position for position, given in enumerate(inputs)}
            while waiting:
                (done, *_), _ = ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(done), ray.get(done)
        finally:
            ray.shutdown()


def check_reachable(address: str) -> None:
    """Fail at once where nothing listens: Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # such as `auto`, which Ray resolves
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UnreachableClusterError(f"no Ray cluster at {address}: {error}") from error


def _called(work: Callable[[Input], Result]) -> Callable[[Input], Result]:
    def call(given: Input) -> Result:
        return work(given)

    return call
