"""The `targets`, `freeze` and `thaw` commands: register running applications and stop all writes."""
