"""What a job says of itself, in one call: `watch(torch.distributed)` in each rank.

    torch_ops        every collective and pass of a process group, where Python calls it
    point_to_point   sends and receives, paired into passes
    progress         how far the rank is: what heartbeats say
    telling          both together: one rank that tells of its collectives
    journal          a bounded queue and a thread: the job never waits for it
    outlets          lines in a recording folder, or datagrams to the node's recorder
    direct           the second way, to the watcher itself, while the inbox refuses
    ddp, ray_train   the same for what torch calls from C++, and for Ray Train's workers

Only the standard library is imported; torch and Ray are handed in, or imported when asked for.  Whatever fails here is
counted and forgotten: it must never cost the job a step.  docs/faults/recorder.md
"""

from fleetwright.collectives.torch_ops import Watch, watch

__all__ = ["Watch", "watch"]
