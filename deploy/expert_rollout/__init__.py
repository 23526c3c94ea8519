"""Rolls stored expert placements out to the replicas of Ray Serve deployments, one replica at a time.

`rollout` decides (a pure function); `controller` reads, converts stored placements to engine files, and writes.  The
replica's side is `fleetwright.expert_rollout`.  docs/explanation/runtime/expert-rollout.md has the state machine.
"""
