"""One file per revision, named by its number."""
