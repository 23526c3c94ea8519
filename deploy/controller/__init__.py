"""The controller: brings every target to its plan, in small verified steps.

`controller.Controller` runs all targets, and `controller.dry_run` shows the changes without writing.
`reconcile.Reconciler` does one target.  The order of changes is pure (`rollout`, `config_changes`, `target_state`,
`health_check`).
"""
