"""Planning against the nearest copy."""
