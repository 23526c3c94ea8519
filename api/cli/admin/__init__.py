"""The `tokens` and `audit` commands: manage API tokens, and read and verify the audit."""
