"""The command of the feed of changes."""
