"""The handles of one load of a driver: what an old one answers is asked once more of a new one.

Drivers are loaded anew under a running agent.  Its handles are then of no use, every cap is forgotten and energy is
counted from nothing: `epoch` counts the loads that were noticed, by a refusal or by a counter that fell.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deploy.gpu.errors import DriverGoneError, GpuError, GpuLostError, NotSupportedError
from deploy.gpu.port import GpuIdentity


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
        self.load()

    def load(self) -> None:
        """Take the library's view of the driver, and whose handles are whose."""
        try:
            found = list(self._opened())
        except self._raised as error:
            raise self._translated(error) from error
        self._of = {identity.uuid: handle for identity, handle in found}
        self.identities = tuple(identity for identity, _handle in found)
        self._begun_anew()

    def ask(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        """Of the handle that the present load has for it; a driver that is gone may have come back, once."""
        try:
            return self._asked(uuid, what)
        except DriverGoneError:
            self._closed()
            self.load()
        return self._asked(uuid, what)

    def optional(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        """None where this GPU or this driver has no such thing."""
        try:
            return self.ask(uuid, what)
        except NotSupportedError:
            return None

    def counted(self, uuid: str, energy: int) -> None:
        """A counter that fell was started anew: by a reload between two looks."""
        if energy < self._energy.get(uuid, 0):
            self._begun_anew()
        self._energy[uuid] = energy

    def _asked(self, uuid: str, what: Callable[[Any], Any]) -> Any:
        if uuid not in self._of:
            raise GpuLostError(f"{uuid}: the driver does not show it any more")
        try:
            return what(self._of[uuid])
        except self._raised as error:
            raise self._translated(error) from error

    def _begun_anew(self) -> None:
        self.epoch += 1
        self._energy = {}
