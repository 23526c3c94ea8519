"""The controller: brings every target to its plan, in small verified steps.

`controller.Controller` runs all targets; `reconcile.Reconciler` does one target; `dry_run` shows the changes without
writing.  The order of changes is pure (`rollout`, `config_changes`, `target_state`, `health_check`).
"""
