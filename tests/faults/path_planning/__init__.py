"""Path planning."""
