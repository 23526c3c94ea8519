"""The `tokens` and `audit` commands: who may call the API, and what was done."""
