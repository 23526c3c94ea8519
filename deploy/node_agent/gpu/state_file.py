"""The state for the next agent after a crash: the original caps, and the leases.

The file is written before the first cap is set and removed when everything is restored.  Leases use the monotonic
clock, which restarts at boot: leases of another boot are dropped.
"""

import os
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Literal

import structlog
from pydantic import ValidationError

from deploy.common.text import reason_of
from deploy.node_agent.cap_lease import OnExpiry
from deploy.node_agent.gpu.cap_leases import GpuCapLease
from deploy.node_agent.gpu.errors import GpuError
from deploy.node_agent.gpu.interface import Caps
from fleet.documents import Frozen, read_stored

log = structlog.get_logger()

_FULL = (ENOSPC, EDQUOT)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateFileError(GpuError):
    """The state file cannot be read or written."""


class StoredCaps(Frozen):
    """The caps of one GPU in the file."""

    power_limit_w: float | None = None
    clock_mhz: int | None = None

    @property
    def caps(self) -> Caps:
        return Caps(self.power_limit_w, self.clock_mhz)


class StoredLease(Frozen):
    """One lease in the file."""

    holder: str
    uuid: str
    caps: StoredCaps
    until_s: float
    on_expiry: OnExpiry = OnExpiry.SAFE

    @classmethod
    def of(cls, lease: GpuCapLease) -> "StoredLease":
        caps = StoredCaps(**lease.caps._asdict())
        return cls(holder=lease.holder, uuid=lease.uuid, caps=caps, until_s=lease.until_s, on_expiry=lease.on_expiry)

    @property
    def lease(self) -> GpuCapLease:
        return GpuCapLease(
            holder=self.holder, uuid=self.uuid, caps=self.caps.caps, until_s=self.until_s, on_expiry=self.on_expiry
        )


class StoredState(Frozen):
    """The file."""

    version: Literal[1] = 1
    boot: str
    found: dict[str, StoredCaps]
    leases: tuple[StoredLease, ...] = ()


class StateFile:
    """A file, or none: then a killed agent's caps stay until another process changes them."""

    def __init__(self, path: Path | None, *, boot: str | None = None) -> None:
        self._path = path
        self._boot = boot if boot is not None else _boot_id()
        self._saved: StoredState | None = None

    def read(self) -> StoredState | None:
        """Read what a killed agent left; leases of another boot are dropped."""
        if self._path is None:
            return None
        try:
            kept = read_stored(StoredState, self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValidationError) as error:
            # A guess would record our own cap as the original one.
            reason = reason_of(error)
            raise StateFileError(f"{self._path}: {reason}; check the caps of each GPU, then remove the file") from error
        self._saved = kept
        return kept if kept.boot == self._boot else kept.model_copy(update={"leases": ()})

    def check_writable(self) -> None:
        """Check at the start that the file can be written: otherwise no cap could ever be set.

        A full disk may have space later, and a killed agent's caps are restored in any case.
        """
        if self._path is None:
            return
        beside = _beside(self._path)
        try:
            if not self._path.exists():
                os.close(os.open(beside, os.O_WRONLY | os.O_CREAT, 0o600))
                beside.unlink()
        except OSError as error:
            if error.errno not in _FULL:
                raise StateFileError(f"{self._path}: cannot be written: {error.strerror}") from error

    @property
    def in_use(self) -> bool:
        return self._saved is not None

    def knows(self, uuid: str, found: Caps) -> bool:
        """Return whether the next agent would restore this GPU to these caps."""
        return self._saved is not None and self._saved.found.get(uuid) == StoredCaps(**found._asdict())

    def write(self, *, found: dict[str, Caps], leases: tuple[GpuCapLease, ...]) -> None:
        """Write the state if it changed."""
        kept = StoredState(
            boot=self._boot,
            found={uuid: StoredCaps(**caps._asdict()) for uuid, caps in found.items()},
            leases=tuple(StoredLease.of(lease) for lease in leases if lease.until_s != float("inf")),
        )
        if self._path is None or kept == self._saved:
            return
        try:
            _replace(self._path, kept.model_dump_json().encode())
        except OSError as error:
            raise StateFileError(f"{self._path}: {error.strerror}") from error
        self._saved = kept

    def remove(self) -> None:
        if self._path is None or self._saved is None:
            return
        try:
            for path in (self._path, _beside(self._path)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StateFileError(f"{self._path}: {error.strerror}") from error
        self._saved = None


def _replace(path: Path, content: bytes) -> None:
    """Replace the file atomically, also when the power fails."""
    beside = _beside(path)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
