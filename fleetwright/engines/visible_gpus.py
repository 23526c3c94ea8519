"""Finds a worker's GPUs among those of its node, by the UUIDs that the node's agent lists.

CUDA or ROCm show a worker a choice (`CUDA_VISIBLE_DEVICES`) of its container's GPUs, which may be a choice of the
node's.  An index into the wrong list would slow a neighbour's GPU, so any ambiguity is an error.  A worker without a
GPU has none.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

VARIABLE = "FLEETWRIGHT_AGENT_GPUS"  # UUIDs, for cases that nothing else resolves
_ALL = {"", "all"}
_HIDDEN = {"none", "void"}


class UnknownGpusError(ValueError):
    """The worker's GPUs are ambiguous."""


class Gpu(NamedTuple):
    uuid: str
    name: str


def own_gpus(
    listed: Sequence[Gpu], *, environment: Mapping[str, str], local: Callable[[], Sequence[str] | None]
) -> tuple[str, ...]:
    """Return UUIDs; empty if the worker has no GPU.  `local` returns the GPUs that the driver shows this process, or
    None.

    `listed` is in the driver's order, which is the order of PCI addresses and of indices.
    """
    if named := environment.get(VARIABLE):
        return _chosen(named, listed, variable=VARIABLE)
    variable = next((name for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if name in environment), None)
    below = "ROCR_VISIBLE_DEVICES" if "ROCR_VISIBLE_DEVICES" in environment else None
    if variable is None and below is None:
        raise UnknownGpusError(f"neither CUDA_VISIBLE_DEVICES nor {VARIABLE} names the GPUs of this worker")
    shown = _shown(listed, environment=environment, local=local)
    for each in (below, variable):
        if each is not None:
            _check_order(environment[each], shown, environment=environment)
            by_uuid = {gpu.uuid: gpu for gpu in shown}
            shown = [by_uuid[uuid] for uuid in _chosen(environment[each], shown, variable=each)]
    return tuple(gpu.uuid for gpu in shown)


def nvml_uuids() -> Sequence[str] | None:
    """Return the GPUs that NVIDIA's driver shows to this process, in order; None without `nvidia-ml-py` or a driver."""
    try:
        pynvml: Any = import_module("pynvml")  # optional dependency
        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no package, no library, no driver: then it cannot be queried
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _shown(
    listed: Sequence[Gpu], *, environment: Mapping[str, str], local: Callable[[], Sequence[str] | None]
) -> list[Gpu]:
    if (visible := local()) is not None:
        by_uuid = {gpu.uuid: gpu for gpu in listed}
        if missing := [uuid for uuid in visible if uuid not in by_uuid]:
            raise UnknownGpusError(f"the agent does not list {', '.join(missing)}: is it this node's?")
        return [by_uuid[uuid] for uuid in visible]
    given = environment.get("NVIDIA_VISIBLE_DEVICES", "all").strip()
    if given in _HIDDEN:
        raise UnknownGpusError(f"NVIDIA_VISIBLE_DEVICES is {given!r} and NVML cannot be queried: set {VARIABLE}")
    if given in _ALL:
        return list(listed)
    chosen = set(_chosen(given, listed, variable="NVIDIA_VISIBLE_DEVICES"))
    return [gpu for gpu in listed if gpu.uuid in chosen]  # a container has them in the driver's order


def _check_order(text: str, shown: Sequence[Gpu], *, environment: Mapping[str, str]) -> None:
    """CUDA numbers the fastest GPU first by default, which is the driver's order only if all GPUs are alike."""
    counted = any(entry.strip().isdigit() for entry in text.split(","))
    if counted and len({gpu.name for gpu in shown}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise UnknownGpusError(f"GPUs of several kinds by number: set CUDA_DEVICE_ORDER=PCI_BUS_ID or {VARIABLE}")


def _chosen(text: str, shown: Sequence[Gpu], *, variable: str) -> tuple[str, ...]:
    """Return the GPUs of a comma-separated choice; it ends at the first negative number, as CUDA's does."""
    found: list[str] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if entry.startswith("-") or entry == "NoDevFiles":
            break
        if entry.startswith("MIG-"):
            raise UnknownGpusError(f"{variable}: {entry} is a slice, which has no clock of its own")
        found.append(_one(entry, shown, variable=variable))
    return tuple(dict.fromkeys(found))


def _one(entry: str, shown: Sequence[Gpu], *, variable: str) -> str:
    if entry.isdigit():
        if int(entry) >= len(shown):
            raise UnknownGpusError(f"{variable}: {entry} of {len(shown)} GPUs")
        return shown[int(entry)].uuid
    # CUDA accepts a unique prefix of a UUID.
    fitting = [gpu.uuid for gpu in shown if gpu.uuid.startswith(entry)]
    if len(fitting) != 1:
        raise UnknownGpusError(f"{variable}: {entry} fits {len(fitting)} of {len(shown)} GPUs")
    return fitting[0]
