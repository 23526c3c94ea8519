"""The handles of one load of a driver: a call on a stale handle is repeated once on a new one.

A driver may be reloaded under a running agent.  Its handles are then invalid, every cap is lost and energy counts from
zero: `epoch` counts the reloads that were detected, by an error or by a counter that fell.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deploy.node_agent.gpu.errors import DriverGoneError, GpuError, GpuLostError, NotSupportedError
from deploy.node_agent.gpu.interface import GpuIdentity

RETRY_CALLS = 240  # calls, a minute of polls, until another load is tried for a GPU that did not recover


class HandleDriver(ABC):
    """The base of a driver over a library with handles; `raised` is the library's exception."""

    def __init__(self, raised: type[Exception]) -> None:
        self.epoch = 0
        self._identities: Sequence[GpuIdentity] = ()
        self._raised = raised
        self._of: dict[str, Any] = {}
        self._energy: dict[str, int] = {}
        self._failed_calls: dict[str, int] = {}  # calls to a GPU since a load that did not recover it
        self._load()

    def identities(self) -> Sequence[GpuIdentity]:
        """Return the GPUs in the library's order."""
        return self._identities

    @abstractmethod
    def close(self) -> None:
        """Close the library."""

    @abstractmethod
    def _opened(self) -> Iterable[tuple[GpuIdentity, Any]]:
        """Open the library and return its GPUs with their handles."""

    @abstractmethod
    def _translated(self, error: Any) -> GpuError:
        """Convert an error of the library."""

    def _load(self) -> None:
        try:
            found = list(self._opened())
        except self._raised as error:
            raise self._translated(error) from error
        self._of = {identity.uuid: handle for identity, handle in found}
        self._identities = tuple(identity for identity, _handle in found)
        self._reloaded()

    def _call(self, uuid: str, call: Callable[[Any], Any]) -> Any:
        """Call with the handle of the present load; if the driver is gone, load it once and repeat.

        A load makes the agent write all caps again, so a GPU with invalid responses must not cause one at every poll.
        """
        try:
            result = self._call_once(uuid, call)
        except DriverGoneError:
            if self._failed_calls.get(uuid, 0) % RETRY_CALLS:
                self._failed_calls[uuid] += 1
                raise
            self.close()
            self._load()
            self._failed_calls[uuid] = 1
            result = self._call_once(uuid, call)
        self._failed_calls.pop(uuid, None)
        return result

    def _optional(self, uuid: str, call: Callable[[Any], Any]) -> Any:
        """Return None if this GPU or this driver does not support the call."""
        try:
            return self._call(uuid, call)
        except NotSupportedError:
            return None

    def _note_energy(self, uuid: str, energy: int) -> None:
        """Note an energy counter; one that fell shows a reload between two polls."""
        if energy < self._energy.get(uuid, 0):
            self._reloaded()
        self._energy[uuid] = energy

    def _call_once(self, uuid: str, call: Callable[[Any], Any]) -> Any:
        if uuid not in self._of:
            raise GpuLostError(f"{uuid}: the driver does not list this GPU any more")
        try:
            return call(self._of[uuid])
        except self._raised as error:
            raise self._translated(error) from error

    def _reloaded(self) -> None:
        self.epoch += 1
        self._energy = {}
