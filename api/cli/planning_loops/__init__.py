"""The `planning-loops` commands: plan targets continuously from their traffic."""
