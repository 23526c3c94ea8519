"""DistributedDataParallel.  Its reducer calls collectives from C++; a communication hook is called from Python.

torch's `allreduce_hook` computes the same as the reducer without a hook.
"""

from typing import Any


def watch_model(model: Any) -> None:
    """Route a DDP model's all-reduce through Python.  Call it before the first backward, on a model without a hook."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only where there is torch
        allreduce_hook,
    )

    model.register_comm_hook(model.process_group, allreduce_hook)
