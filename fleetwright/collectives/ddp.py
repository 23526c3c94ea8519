"""DistributedDataParallel under watch.  Its reducer calls collectives from C++; a hook is called in Python.

torch's own `allreduce_hook` does what the reducer does without a hook: divide, all-reduce, the same numbers.
"""

from typing import Any


def watch_model(model: Any) -> None:
    """Let a model in DDP all-reduce where `watch` sees it; before its first backward, and unless it has a hook."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only where there is torch
        allreduce_hook,
    )

    model.register_comm_hook(model.process_group, allreduce_hook)
