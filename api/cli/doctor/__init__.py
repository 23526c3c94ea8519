"""The `doctor` command: check an installation, and name what is wrong and how to repair it."""
