"""From one placement to the next."""
