"""Discovery of nodes: keeps the stock and the topology of a service from the objects of a Kubernetes cluster.

`discovery.NodeDiscovery` runs in the controller's process beside the targets, by the leader only.  It writes nothing to
the cluster.
"""
