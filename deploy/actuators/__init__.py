"""Actuators: one protocol, `observe` and `apply`, for every kind of target that the controller scales.

`base` has the protocol and its values; `ray_serve`, `ray_cluster`, `ray_train` and `kubernetes_scale` implement it.
Use `registry.reachable_actuators` for all kinds that this process can reach.
"""
