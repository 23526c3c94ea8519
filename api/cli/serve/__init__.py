"""The `serve` and `migrate` commands: run the API server and change its database schema."""
