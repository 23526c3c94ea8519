"""The `controller` command: reconcile running applications with their plans."""
