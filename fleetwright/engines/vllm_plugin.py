"""vLLM plug-in that places experts by a Fleetwright placement in a running engine.  Off unless configured.

vLLM (read in 0.33) takes no placement file.  Its balancer calls `EPLB_POLICIES["default"].rebalance_experts` every
`step_interval` steps, in each worker, with token counts summed over all workers.  The plug-in (entry point group
`vllm.general_plugins`) wraps that policy if FLEETWRIGHT_VLLM_PLACEMENT names a file, and returns the file's map.

All workers must return the same map in the same step, but the file may change while they read it, or at different times
on different nodes.  So they agree:

1. Each worker reads its file and takes a fingerprint of the map, 0 without a map that fits the engine.
2. One all-reduce over the balancer's own CPU group gives the smallest and the largest fingerprint.  vLLM separates that
   group from the model's traffic, and with `use_async` uses it from the thread that calls the policy.
3. Smallest = largest > 0: all use the map.  Both 0: vLLM's own policy.  Otherwise the workers read different files:
   everything stays in place, and a later call finds them agreed.

The decision depends on shared values only, so the variable must be set for every worker or for none.  A file that does
not fit, for example for vLLM's draft model with other layers, is logged and leaves vLLM's own balancing.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetwright.engines.placement_file import (
    Ints,
    MapShape,
    PlacementFile,
    as_map,
    describe,
    fingerprint,
    settled,
)

VARIABLE = "FLEETWRIGHT_VLLM_PLACEMENT"
_LOG = logging.getLogger("vllm.fleetwright")  # below vLLM's logger, whose handlers print it
NONE = 0  # the fingerprint of no usable map

Agreement = Callable[[int], tuple[int, int]]  # a worker's fingerprint -> the smallest and the largest of all workers


def register() -> None:
    """Register with vLLM, which may call this entry point several times in every process."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        from vllm.distributed.eplb.policy import EPLB_POLICIES  # type: ignore[import-not-found]  # noqa: PLC0415 - in vLLM alone

        own = EPLB_POLICIES["default"]
    except (ImportError, KeyError) as error:
        _LOG.warning("%s is not used: this vLLM has no default EPLB policy to wrap (%s)", VARIABLE, describe(error))
        return
    if not getattr(own, "is_fleetwright", False):
        EPLB_POLICIES["default"] = placed_policy(own, PlacementFile(Path(path)), agree=agree_in_vllm)
        _LOG.info("experts are placed by %s (%s)", path, VARIABLE)


def placed_policy(own: Any, source: PlacementFile, *, agree: Agreement) -> Any:
    reported: set[str] = set()

    def warn_once(reason: str) -> None:
        if reason not in reported:  # the balancer runs for months
            reported.add(reason)
            _LOG.warning("placement %s is not used: %s", source.path, reason)

    def read(shape: MapShape) -> Ints | None:
        try:
            return source.read(shape)
        except Exception as error:  # noqa: BLE001 - other workers wait for this one, whatever its file holds
            warn_once(describe(error))
            return None

    class PlacedEplbPolicy(own):  # type: ignore[misc]
        is_fleetwright = True

        @classmethod
        def rebalance_experts(  # noqa: PLR0917 - vLLM's signature
            cls,
            weight: Any,
            num_replicas: int,
            num_groups: int,
            num_nodes: int,
            num_ranks: int,
            old_global_expert_indices: Any = None,
        ) -> Any:
            shape = MapShape(int(weight.shape[0]), int(weight.shape[1]), num_replicas, num_ranks)
            current = None if old_global_expert_indices is None else as_map(old_global_expert_indices)
            wanted = agreed_map(read(shape), current, shape=shape, agree=agree, warn_once=warn_once)
            if wanted is None:
                return super().rebalance_experts(
                    weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices
                )
            import torch  # type: ignore[import-not-found]  # noqa: PLC0415

            return torch.from_numpy(wanted)

    return PlacedEplbPolicy


def agreed_map(
    found: Ints | None, current: Ints | None, *, shape: MapShape, agree: Agreement, warn_once: Callable[[str], None]
) -> Ints | None:
    """Return the map for all workers: the agreed one, or the loaded one; None for vLLM's own policy."""
    smallest, largest = agree(NONE if found is None else fingerprint(found))
    if smallest == largest:
        if found is None or current is None:
            return found
        return settled(found, current, gpus=shape.gpus)
    warn_once("workers found different files; experts stay where they are until all find the same")
    if current is None or current.shape != (shape.layers, shape.slots) or (current < 0).any():
        return None
    return current


def agree_in_vllm(mine: int) -> tuple[int, int]:
    """Return the smallest and the largest fingerprint of the workers that balance together."""
    import torch  # noqa: PLC0415
    from vllm.distributed.parallel_state import get_eplb_group  # type: ignore[import-not-found]  # noqa: PLC0415

    both = torch.tensor([mine, -mine], dtype=torch.int64)
    torch.distributed.all_reduce(both, op=torch.distributed.ReduceOp.MIN, group=get_eplb_group().cpu_group)
    return int(both[0]), -int(both[1])
