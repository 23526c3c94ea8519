"""Custom resources FleetTarget and PlanRequest: desired documents of the API, kept in a cluster.

One way: specifications go from the cluster to the API, the API's status comes back as conditions
(docs/how-to/declare-targets-in-kubernetes.md).  `CustomResources` is the entry point.
"""
