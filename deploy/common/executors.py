"""The same function on many inputs, in processes of this machine or on a Ray cluster, answers as they come."""

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import cpu_count
from typing import Any, Protocol, TypeVar

from fleet.errors import FleetwrightError

Given = TypeVar("Given")
Answer = TypeVar("Answer")

CONNECT_S = 5.0


class UnreachableClusterError(FleetwrightError):
    """No Ray cluster answers at the address."""


class Runner(Protocol):
    """Where the work is done."""

    def run(self, work: Callable[[Given], Answer], inputs: Sequence[Given]) -> Iterator[tuple[int, Answer]]:
        """(position of the input, answer), in the order in which answers come."""


class Processes:
    """Processes of this machine, started anew: a solver's state must not be forked."""

    def __init__(self, *, workers: int | None = None) -> None:
        self._workers = workers or cpu_count() or 1

    def run(self, work: Callable[[Given], Answer], inputs: Sequence[Given]) -> Iterator[tuple[int, Answer]]:
        """One after another where one worker would only cost its start."""
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
    """Tasks on a running Ray cluster whose nodes have this package installed."""

    def __init__(self, *, address: str) -> None:
        self._address = address

    def run(self, work: Callable[[Given], Answer], inputs: Sequence[Given]) -> Iterator[tuple[int, Answer]]:
        """At most as many tasks in flight as inputs; the connection is closed at the end."""
        import ray  # noqa: PLC0415 - an extra, and seconds to import

        refuse_silence(self._address)
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


def refuse_silence(address: str) -> None:
    """Where nothing listens Ray itself would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # `auto` and the like: Ray looks itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UnreachableClusterError(f"no Ray cluster at {address}: {error}") from error


def _called(work: Callable[[Given], Answer]) -> Callable[[Given], Answer]:
    """A plain function, which is all that Ray takes."""

    def call(given: Given) -> Answer:
        return work(given)

    return call
