"""The remediation controller: drains nodes that are out of service, moves their training work, and probes the nodes.

`fleetwright remediate run` calls `process.run_remediation`.  The quarantine policy in the API decides which nodes are
out of service; `case_state_machine.advance` decides the next actions on each of them.
docs/explanation/runtime/remediation.md
"""
