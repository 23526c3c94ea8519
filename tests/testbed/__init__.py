"""Real parts as fixtures."""
