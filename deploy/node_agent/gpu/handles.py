"""The handles of one load of a driver: what an old one answers is asked once more of a new one.

Drivers are loaded anew under a running agent.  Its handles are then of no use, every cap is forgotten and energy is
counted from nothing: `epoch` counts the loads that were noticed, by a refusal or by a counter that fell.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deploy.node_agent.gpu.errors import DriverGoneError, GpuError, GpuLostError, NotSupportedError
from deploy.node_agent.gpu.interface import GpuIdentity

RETRY_CALLS = 240  # questions, a minute of looks, until another load is tried for the sake of a GPU that gained by none


class Handles:
    """Of one library.  `opened` shows its GPUs, `closed` lets go of it, `translated` types what it raises."""

    def __init__(
        self,
        *,
        raised: type[Exception],
        translated: Callable[[Any], GpuError],
        opened: Callable[[], Iterable[tuple[GpuIdentity, Any]]],
        closed: Callable[[], None],
    ) -> None:
        self.epoch = 0
        self.identities: Sequence[GpuIdentity] = ()
        self._raised, self._translated, self._opened, self._closed = raised, translated, opened, closed
        self._of: dict[str, Any] = {}
        self._energy: dict[str, int] = {}
        self._failed_calls: dict[str, int] = {}  # questions of a GPU since a load that did not bring it back
        self.load()

    def load(self) -> None:
        """Take the library's view of the driver, and whose handles are whose."""
        try:
            found = list(self._opened())
        except self._raised as error:
            raise self._translated(error) from error
        self._of = {identity.uuid: handle for identity, handle in found}
        self.identities = tuple(identity for identity, _handle in found)
        self._reloaded()

    def call(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        """Of the handle that the present load has for it; a driver that is gone may have come back, once.

        Every load makes all GPUs be told their caps again, so one that answers nonsense must not bring one about at
        every look.
        """
        try:
            result = self._call_once(uuid, what)
        except DriverGoneError:
            if self._failed_calls.get(uuid, 0) % RETRY_CALLS:
                self._failed_calls[uuid] += 1
                raise
            self._closed()
            self.load()
            self._failed_calls[uuid] = 1
            result = self._call_once(uuid, what)
        self._failed_calls.pop(uuid, None)
        return result

    def optional(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        """None where this GPU or this driver has no such thing."""
        try:
            return self.call(uuid, what)
        except NotSupportedError:
            return None

    def note_energy(self, uuid: str, energy: int) -> None:
        """A counter that fell was started anew: by a reload between two looks."""
        if energy < self._energy.get(uuid, 0):
            self._reloaded()
        self._energy[uuid] = energy

    def _call_once(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        if uuid not in self._of:
            raise GpuLostError(f"{uuid}: the driver does not show it any more")
        try:
            return what(self._of[uuid])
        except self._raised as error:
            raise self._translated(error) from error

    def _reloaded(self) -> None:
        self.epoch += 1
        self._energy = {}
