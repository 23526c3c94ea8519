"""Records the collectives of a rank: call `watch(torch.distributed)` in each rank after `init_process_group`.

    torch_ops        wraps the methods of ProcessGroup
    point_to_point   pairs sends and receives into passes
    progress         the rank's progress, as heartbeats report it
    rank_reporter    progress of one rank, and a bounded queue with its thread, so that the job never waits
    sinks            a recording folder, or the inbox of the node's recorder
    http_fallback    posts to the fault monitor while the inbox refuses
    ddp              DistributedDataParallel, which torch calls from C++

The package imports the standard library only; the caller passes torch.  Errors are counted and never reach the job.
docs/how-to/record-collectives.md
"""

from fleetwright.collectives.torch_ops import Watch, watch

__all__ = ["Watch", "watch"]
