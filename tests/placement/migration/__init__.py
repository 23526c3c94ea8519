"""Migration from one placement to the next."""
