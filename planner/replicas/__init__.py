"""Every way to run a replica, and what the request's rules mean for it (docs/options.md).

`planner.replicas.options.candidates` is the entry.
"""
