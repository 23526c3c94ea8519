"""The `tokens` and `audit` commands."""
