"""The GPUs of one node: telemetry, caps with leases, and their restore (docs/explanation/runtime/node-agent.md).

factory             the registry of the drivers behind `interface`
cap_leases          the requested caps and their leases; pure
cap_state_machine   one cap of one GPU, from request to read-back; pure
cap_controller      polls, writes, polls again; restores                (state_file: for the agent after a crash)
node                all GPUs as the device of the guard                 (routes: HTTP)
"""
