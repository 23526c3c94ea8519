"""Actuators: each reads and changes the replica counts of one kind of running workload."""
