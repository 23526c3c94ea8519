"""The `profiles` command group: import and fit measurements of serving engines."""
