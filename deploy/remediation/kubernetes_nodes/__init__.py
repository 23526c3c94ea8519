"""Remediation on the nodes of a Kubernetes cluster: cordon and taint, node condition, eviction of GPU pods, release.

`case_state_machine.advance` decides, `actuator.KubernetesActuator` observes and writes, and
`process.run_kubernetes_remediation` runs both in the remediation controller.  docs/explanation/faults/quarantine.md
"""
