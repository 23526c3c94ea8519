"""The controller as a detached actor of a Ray cluster, and one node actor on each of the cluster's nodes.

`lifecycle` starts, stops, upgrades and lists controllers from outside.  `controller_actor` runs the controller in a
thread and supervises the node actors; `node_actor` records sockets, workers and GPUs of its node and writes to nothing.
"""
