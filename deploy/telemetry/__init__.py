"""The recorder of one node: observes the traces of the job's collectives in the kernel and in /proc.

    sockets    TCP counters per peer, by INET_DIAG in the job's network namespace (netlink, diag, peers)
    sources    process state, InfiniBand ports, dcgm-exporter, RAS, dumps
    inbox      datagrams of ranks, from `fleetwright.collectives`
    sinks      a recording folder; a fault monitor over HTTP (folder, batch_codec, sender)

It does not change the job and needs no privilege beyond the job's namespace.  Use `factory.recorder_of`.
docs/explanation/faults/recorder.md
"""
