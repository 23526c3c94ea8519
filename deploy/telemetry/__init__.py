"""The recorder of one node: looks from outside the job at what its collectives leave in the kernel and beside it.

    sockets    TCP counters per peer, by INET_DIAG in the job's network namespace (netlink, diag, peers)
    sources    process state, InfiniBand ports, dcgm-exporter, RAS, dumps
    inbox      what the job says of itself, by datagram from `fleetwright.collectives`
    sinks      a recording folder; a watcher over HTTP (folder, wire, sender)

It changes nothing of the job and asks for no right beyond the job's own namespace.  docs/faults/recorder.md
"""
