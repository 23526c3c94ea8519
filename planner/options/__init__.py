"""Every way to run a replica, and what the request's rules mean for it (docs/options.md).

`planner.options.builder.candidates` is the entry.
"""
