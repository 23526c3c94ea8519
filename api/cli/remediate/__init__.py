"""The `remediate` command: drain quarantined nodes and move training runs to spares."""
