"""Which of its node's GPUs are a worker's, as the node's agent calls them: their UUIDs.

A worker knows its GPUs by what CUDA or ROCm shows it, which is a choice (`CUDA_VISIBLE_DEVICES`) out of what its
container shows, which may be a choice out of the node.  An index into the wrong list would slow a neighbour's GPU, so
what is not certain is an error, and a worker that names no GPU has none.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

NAMED = "FLEETWRIGHT_AGENT_GPUS"  # UUIDs, where nothing else tells
_ALL = {"", "all"}
_HIDDEN = {"none", "void"}


class UnknownGpusError(ValueError):
    """It cannot be told which GPUs are the worker's."""


class Gpu(NamedTuple):
    """As the agent lists it."""

    uuid: str
    name: str


def own_gpus(
    listed: Sequence[Gpu], *, environment: Mapping[str, str], local: Callable[[], Sequence[str] | None]
) -> tuple[str, ...]:
    """UUIDs, none where the worker has no GPU.  `local`: those that the driver shows this process, where it does.

    `listed` is in the driver's order, that of PCI addresses, which is the order of indices too.
    """
    if named := environment.get(NAMED):
        return _chosen(named, listed, variable=NAMED)
    variable = next((name for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if name in environment), None)
    below = "ROCR_VISIBLE_DEVICES" if "ROCR_VISIBLE_DEVICES" in environment else None
    if variable is None and below is None:
        raise UnknownGpusError(f"neither CUDA_VISIBLE_DEVICES nor {NAMED} says which GPUs are this worker's")
    shown = _shown(listed, environment=environment, local=local)
    for each in (below, variable):
        if each is not None:
            _check_order(environment[each], shown, environment=environment)
            by_uuid = {gpu.uuid: gpu for gpu in shown}
            shown = [by_uuid[uuid] for uuid in _chosen(environment[each], shown, variable=each)]
    return tuple(gpu.uuid for gpu in shown)


def nvml_uuids() -> Sequence[str] | None:
    """What NVIDIA's driver shows this process, in its order; None where it, or `nvidia-ml-py`, is not there."""
    try:
        pynvml: Any = import_module("pynvml")  # an extra stands behind it
        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no package, no library, no driver: then it cannot be asked
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
    """What the worker's container has of the node."""
    if (told := local()) is not None:
        by_uuid = {gpu.uuid: gpu for gpu in listed}
        if missing := [uuid for uuid in told if uuid not in by_uuid]:
            raise UnknownGpusError(f"the agent does not list {', '.join(missing)}: is it this node's?")
        return [by_uuid[uuid] for uuid in told]
    given = environment.get("NVIDIA_VISIBLE_DEVICES", "all").strip()
    if given in _HIDDEN:
        raise UnknownGpusError(f"NVIDIA_VISIBLE_DEVICES is {given!r} and NVML cannot be asked: set {NAMED}")
    if given in _ALL:
        return list(listed)
    chosen = set(_chosen(given, listed, variable="NVIDIA_VISIBLE_DEVICES"))
    return [gpu for gpu in listed if gpu.uuid in chosen]  # a container has them in the driver's order


def _check_order(said: str, shown: Sequence[Gpu], *, environment: Mapping[str, str]) -> None:
    """CUDA counts the fastest first, unless told otherwise: the same as the driver's order only where all are alike."""
    counted = any(entry.strip().isdigit() for entry in said.split(","))
    if counted and len({gpu.name for gpu in shown}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise UnknownGpusError(f"GPUs of several kinds by number: set CUDA_DEVICE_ORDER=PCI_BUS_ID or {NAMED}")


def _chosen(said: str, shown: Sequence[Gpu], *, variable: str) -> tuple[str, ...]:
    """Those of a comma-separated choice; it ends at the first number below 0, as CUDA's does."""
    found: list[str] = []
    for entry in filter(None, (part.strip() for part in said.split(","))):
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
    # CUDA takes the beginning of a UUID for all of it.
    fitting = [gpu.uuid for gpu in shown if gpu.uuid.startswith(entry)]
    if len(fitting) != 1:
        raise UnknownGpusError(f"{variable}: {entry} fits {len(fitting)} of {len(shown)} GPUs")
    return fitting[0]
