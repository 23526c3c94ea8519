"""Runs real ranks, each in its own network namespace behind a link that can be slowed and cut.

`network` creates the namespaces, `shaping` the links, `injections` the faults, `ranks` the processes, `job` the
training job in them, `session` a whole recorded run with live detection.  docs/explanation/faults/lab.md
"""
