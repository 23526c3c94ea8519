"""A lab of real ranks: each in a network namespace of its own, behind links that can be slowed and cut.

`network` makes the namespaces, `shaping` the links, `injections` what goes wrong, `ranks` the processes, `job` the
training job that runs in them, `session` a whole run: recorded, and watched while it happens.
docs/explanation/faults/lab.md
"""
