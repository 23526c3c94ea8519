"""The twin."""
